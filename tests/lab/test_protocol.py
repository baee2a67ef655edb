"""The paper's nested sets: their sizes, their difficulties, and which phase measures which."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from cloud_anchor.errors import RequestError
from lab.experiment import DEFAULT_PROMPTS
from lab.experiments.paper import PHASES
from lab.options import OWN, PAPER
from lab.protocol import ABLATION, EASY, OTHERS, STRATA, Limits
from lab.protocol import protocol as protocol_of
from lab.questions.items import Item

SUBJECTS = {"easy": "nutrition", "hard": "abstract_algebra"}


def protocol(name: str, sources: list[str], subset: int | None, seed: int) -> tuple[Sequence[Item], Limits]:
    return protocol_of(name, sources, subset, seed, list(PHASES.values()))


def _write(path: Path, rows: Sequence[object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"{path.stem}={path}"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """More rows of every difficulty than the protocol wants."""
    folder = tmp_path_factory.mktemp("benchmarks")
    mmlu = [
        {"question": f"Q{n}", "choices": list("wxyz"), "answer": 1, "subject": SUBJECTS[level]}
        for level in SUBJECTS
        for n in range(60)
    ]
    letters = {"text": list("wxyz"), "label": list("ABCD")}
    arc = [
        {"question": f"Q{n}", "choices": letters, "answerKey": "A", "config": f"ARC-{level}"}
        for level in ("Easy", "Challenge")
        for n in range(60)
    ]
    gsm8k = [
        {"question": f"Q{n}", "answer": "<<1+1=2>>" * steps + f"\n#### {n}"}
        for steps in (1, 3, 6)
        for n in range(30)
    ]
    code = [{"prompt": f"def f{n}():", "test": "", "entry_point": f"f{n}"} for n in range(60)]
    named = {"mmlu": mmlu, "arc": arc, "gsm8k": gsm8k, "humaneval": code}
    return [_write(folder / f"{name}.jsonl", rows) for name, rows in named.items()]


def test_the_papers_sets_have_its_sizes_and_are_nested(sources: list[str]) -> None:
    items, limits = protocol(PAPER, sources, None, 0)
    counts = Counter((item.benchmark, item.difficulty) for item in items)
    assert counts == {(name, level): n for name, strata in STRATA.items() for level, n in strata.items()}
    assert len(items) == len({item.id for item in items}) == 310
    assert limits["commits"] is None
    assert limits["pearl"] is None
    assert limits["fill"] == OTHERS == 190
    assert (limits["ablation"], limits["gaps"], limits["sizes"]) == (50, 50, 50)
    assert limits["timing"] == 20
    assert all(item.difficulty != "easy" for item in items[:190])
    assert all(item.difficulty == "easy" for item in items[190:])
    assert len({item.benchmark for item in items[:ABLATION]}) == 4  # drawn from all of the 190
    assert [item.id for item in protocol(PAPER, sources, None, 0)[0]] == [i.id for i in items]
    assert [item.id for item in protocol(PAPER, sources, None, 1)[0]] != [i.id for i in items]


def test_a_subset_is_so_many_prompts_of_each_benchmark(sources: list[str]) -> None:
    items, limits = protocol(PAPER, sources, 5, 0)
    assert Counter(item.benchmark for item in items) == dict.fromkeys(STRATA, 5)
    main = [item for item in items if item.difficulty != "easy"]
    assert limits["fill"] == limits["ablation"] == len(main) == 5 + 2 + 2 + 3
    assert {item.id for item in items} <= {item.id for item in protocol(PAPER, sources, None, 0)[0]}


def test_sources_that_the_paper_does_not_have_are_split_by_difficulty() -> None:
    items, limits = protocol(PAPER, ["tiny"], None, 0)
    easy = [item for item in items if item.difficulty == "easy"]
    assert (len(items), len(easy), limits["fill"]) == (310, EASY, OTHERS)


def test_the_suites_own_sets_are_the_phases_limits() -> None:
    items, limits = protocol(OWN, ["tiny"], 30, 0)
    assert (len(items), limits["fill"], limits["timing"]) == (30, None, 20)
    assert DEFAULT_PROMPTS == 200


def test_too_few_prompts_of_a_difficulty_are_refused(tmp_path: Path, sources: list[str]) -> None:
    few = _write(tmp_path / "gsm8k.jsonl", [{"question": "Q", "answer": "<<1=1>>\n#### 1"}] * 25)
    with pytest.raises(RequestError, match="20 medium"):
        protocol(PAPER, [few], None, 0)
    with pytest.raises(RequestError, match="found 25"):
        protocol(PAPER, [few], 30, 0)
