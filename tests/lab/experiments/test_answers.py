"""Experiment `answers` on the shipped model, with texts of its size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from edge_runtime.bundle.bundle import Bundle
from lab.__main__ import main
from lab.answers.read import Text, sources, texts_of, wrote
from lab.experiments import answers
from lab.formats.codec_bench import with_dictionary
from lab.records import read_records
from lab.statistics import Summary
from tests.shipped import TINY_BUNDLE


def records_of(folder: Path, name: str) -> dict[str, Any]:
    """An experiment's records by their ids."""
    return {row["id"]: row for row in read_records(folder / "items" / f"{name}.jsonl")}


def test_the_texts_are_there_and_no_two_have_one_name() -> None:
    assert {"dream-7b", "gsm8k", "qwen2.5-coder-0.5b"} <= {*sources()}
    ids = [each.id for source in sources() for each in texts_of(source)]
    assert len(ids) == len({*ids})


def test_every_text_is_coded_given_back_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {
        "people": [Text("people:1", "Which river?", "The river Arine.")],
        "one": [Text("one:1", "Where?", "B. Torden."), Text("one:2", "", "Bread.")],
        "tiny": [Text("tiny:1", "Which river?", "Arine.")],
    }
    monkeypatch.setattr(answers, "sources", lambda: list(written))
    monkeypatch.setattr(answers, "texts_of", written.__getitem__)
    monkeypatch.setattr(answers, "WRITTEN", "people")
    monkeypatch.setattr(answers, "wrote", lambda source, model: source == "tiny")
    monkeypatch.setattr(answers, "_trained", answers.lru_cache(zstd_of_bread))
    line = [*"run answers --decoded 1 --threads 1 --edge".split(), str(TINY_BUNDLE), "-o", str(tmp_path)]
    assert main(line) == 0
    records = records_of(tmp_path, "answers")
    name = TINY_BUNDLE.name
    wanted = {f"{name}  {id_}" for id_ in ("people:1", "one:1", "one:2")}
    assert {*records} == wanted, "nothing of the device's own model"
    for record in records.values():
        sizes = record["bytes"]
        assert 4 < sizes["predictive"] < 60
        assert (record["passes"] or 1) <= record["tokens"] + 2
        assert ("decode" in record["seconds"]) == (record["id"] != f"{name}  one:2")
        assert {"raw", "gzip", "zstd", "zstd-dictionary", "zstd-trained", "compact"} <= sizes.keys()
        assert (answers.PORTABLE in sizes) == ("decode" in record["seconds"])
        assert 4 < sizes.get(answers.PORTABLE, 5) <= sizes.get(answers.GUARDED, 5)
        if "ideal" in sizes:
            assert 0 < sizes["ideal"] <= sizes["predictive"]
    bytes_, seconds = answers.tables(list(records.values()), answers.About())
    assert [row["source"] for row in bytes_.rows] == ["people", "one", answers.EVERY]
    assert [row["link"] for row in seconds.rows] == list(answers.LINKS)
    slow, fast = seconds.rows[0], seconds.rows[-1]
    for row in bytes_.rows:
        less = row["portable / guard"]
        assert isinstance(less, Summary)
        assert 0 < less.low <= less.mean <= less.high <= 1
    for way in ("text, whole", "ours, first word and whole"):
        assert slow[way] > fast[way]  # type: ignore[operator]
    assert main(line) == 0
    assert main([*line, "--prompts", "1"]) == 2, "another subset has a folder of its own"


def zstd_of_bread(half: int) -> zstandard.ZstdCompressor:
    return with_dictionary(zstandard.ZstdCompressionDict(b"Bread", zstandard.DICT_TYPE_RAWCONTENT))


def test_the_model_that_answered_is_told_by_its_name() -> None:
    model = Bundle.open(TINY_BUNDLE).manifest.model
    named = replace(model, id="Qwen/Qwen2.5-Coder-0.5B-Instruct")
    assert wrote("qwen2.5-coder-0.5b", named)
    assert not wrote("qwen2.5-coder-0.5b", model)
    assert not wrote("gsm8k", named)
