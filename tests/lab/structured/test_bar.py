"""The bar, on a few schemas, and the experiment's judge of an object."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from edge_runtime.grammar.matcher import GrammarVocabulary
from lab.benches import grammar_masks
from lab.structured import bar
from lab.structured.answers import SCHEMA, strings
from tests.bytewise import CONTRACT, BytewiseTokens, HashedModel

pytest.importorskip("llguidance")


def test_a_few_answers_of_the_bar_are_valid_and_take_no_more_passes() -> None:
    vocabulary = GrammarVocabulary(BytewiseTokens(), CONTRACT)
    rows = [bar.measured(Random(seed), HashedModel(seed), [1, 2], vocabulary, CONTRACT) for seed in range(25)]
    found = bar.summary(rows)
    assert (found["answers"], found["valid"], found["wrong"]) == (25, 25, [])
    assert found["over twice"]["passes"] == 0
    assert found["anchors"] > 0
    shown = {row["figure"]: row for row in bar.table(rows).rows}
    most = shown["passes, of the free answer's"]["most"]
    assert isinstance(most, float)
    assert most <= 1.01


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bar, "random_schema", lambda random: {"type": "array", "maxItems": 1})
    assert bar.main(["--schemas", "2", "-o", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "tables.json").read_text())
    assert found["description"][0].startswith("2 of 2 answers are valid")
    assert len(found["tables"]["bar"]["rows"]) == len(bar.FIGURES)


def test_only_a_valid_object_has_strings() -> None:
    value = {"name": "tin", "attributes": [{"name": "symbol", "value": "Sn"}]}
    assert strings(json.dumps(value)) == "tin\nsymbol\nSn"
    assert strings(json.dumps({**value, "attributes": []})) is None
    assert strings("Tin is a metal.") is None
    assert SCHEMA["required"] == ["name", "attributes"]


def test_masks_are_timed_along_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = Path("edge_runtime/bundles/testbed-qwen/tokenizer.json")
    assert grammar_masks.main(["--tokenizer", str(tokenizer), "--repeat", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["microseconds"]) == {"mask", "mask_applied", "forced", "ending"}
    assert found["tokens"] > 40
