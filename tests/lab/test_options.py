"""The options of pairs and questions: one declaration, which every command of the suite reads alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from lab import __main__, experiment
from lab import options as asking
from lab.benches import sampler
from lab.questions.items import Item

PAIR = ["--model", "testbed"]


def test_questions_are_those_of_the_pair_unless_sources_are_named() -> None:
    assert asking.Options().sources == ["tiny"]
    assert asking.Options(model="testbed").sources == ["testbed"]
    assert asking.Options(model="some/folder").sources == ["tiny"]
    named = asking.Options(model="testbed", data=("tiny", "testbed:sum"))
    assert named.sources == ["tiny", "testbed:sum"]

    def asked(**given: Any) -> list[str]:
        setup = experiment.Setup(asking.Options(prompts=3, **given), None)
        return [item.prompt for item in experiment.questions(setup)]

    assert asked() == asked(data=("tiny",), seed=0)
    assert len(asked()) == 3
    assert asked() != asked(seed=1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int, int]]:
    """The sources, numbers and seeds that were asked for; nothing is measured."""
    calls: list[tuple[list[str], int, int]] = []

    def note(sources: list[str], count: int, seed: int) -> list[Item]:
        calls.append((sources, count, seed))
        raise RequestError("asked")

    for module in (experiment, sampler):
        monkeypatch.setattr(module, "load_items", note)
    return calls


@pytest.mark.parametrize("name", ["fill", "passes", "paper"])
def test_questions_are_read_from_data(
    name: str, asked: list[tuple[list[str], int, int]], tmp_path: Path
) -> None:
    line = ["run", name, "-o", str(tmp_path / "out"), *PAIR, "--prompts", "2", "--seed", "7"]
    assert __main__.main(line) == 2
    assert __main__.main([*line, "--data", "testbed:sum", "tiny"]) == 2
    assert asked == [(["testbed"], 2, 7), (["testbed:sum", "tiny"], 2, 7)]
    assert not list(tmp_path.iterdir()), "questions are read before anything is made"


def test_the_sampler_is_timed_on_questions_from_data(
    asked: list[tuple[list[str], int, int]], dream_folder: Path, tmp_path: Path
) -> None:
    needed = ["run", "sampler", "-o", str(tmp_path), "--model", str(dream_folder), "--batch", "2"]
    assert __main__.main(needed) == 2
    assert __main__.main([*needed, "--data", "testbed:sum"]) == 2
    assert asked == [(["tiny"], 2, 0), (["testbed:sum"], 2, 0)]
