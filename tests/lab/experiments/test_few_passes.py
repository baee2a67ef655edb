"""Long answers after few passes: the tables from records, and the measurement on the tests' pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.__main__ import main
from lab.experiment import About
from lab.experiments import few_passes
from lab.experiments.few_passes import FewPassesOptions
from lab.statistics import Summary
from lab.tables import Table


def answer(model: str, tokens: int, passes: int, early: float) -> dict[str, Any]:
    found: dict[str, Any] = {"model": model, "tokens": tokens, "passes": passes, "finished": 0.8}
    found |= {"tokens a pass": tokens / passes, "bytes 0.1": 50.0}
    found |= {
        f"{name} {metric} 0.1": early for name in ("draft", "edge-aware") for metric in ("graded", "f1")
    }
    return found | {f"length off {passes}": tokens / passes for passes in few_passes.EARLY_PASSES}


def mean(table: Table, row: int, column: str) -> float:
    cell = table.rows[row][column]
    return cell.mean if isinstance(cell, Summary) else float(str(cell))


def test_only_questions_with_long_answers_of_every_model_count() -> None:
    own = FewPassesOptions(beside=("before",), fractions=(0.1,))
    long = [answer("taught", 100, 20, 0.8), answer("before", 90, 60, 0.4)]
    short = [answer("taught", 100, 20, 0.0), answer("before", 59, 60, 0.0)]
    records = [{"id": str(at), "answers": long} for at in range(3)] + [{"id": "short", "answers": short}]
    whole, early, length = few_passes.tables(records, About(model="taught", own=own))
    assert [row["N"] for row in whole.rows] == [3, 3]
    assert [mean(whole, row, "tokens a pass") for row in (0, 1)] == [5.0, 1.5]
    assert mean(early, 1, "draft: F1, difference") == pytest.approx(-0.4)
    assert mean(length, 0, "after 2") == 50


def test_the_measurement_on_the_tests_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_passes, "LONG", 0)
    options = ["--model", "tiny", "--data", "tiny", "--beside", "tiny-dream", "--prompts", "2"]
    assert main(["run", "few_passes", *options, "-o", str(tmp_path)]) == 0
    one, other = json.loads((tmp_path / "tables.json").read_text())["tables"]["whole"]["rows"]
    assert (one.pop("model"), other.pop("model")) == ("tiny", "tiny-dream")
    assert one == other, "the same weights"
    assert one["tokens a pass"]["mean"] > 1
