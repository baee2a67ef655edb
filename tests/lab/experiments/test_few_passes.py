"""Long answers after few passes: the tables from records, and the measurement on the tests' pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from lab.__main__ import main
from lab.experiment import About
from lab.experiments import few_passes
from lab.experiments.few_passes import FewPassesOptions
from lab.statistics import Summary
from lab.tables import Table
from tests.shipped import TINY_BUNDLE


def answer(model: str, tokens: int, passes: int, early: float) -> dict[str, Any]:
    found: dict[str, Any] = {"model": model, "rule": "0.9", "tokens": tokens, "passes": passes}
    found |= {"tokens a pass": tokens / passes, "full": 0.8, "finished": 0.8, "bytes 0.1": 50.0}
    found |= {f"{name} graded 0.1": early for name in ("draft", "edge-aware")}
    found |= {f"{name} F1 0.1": early for name in ("draft", "edge-aware")}
    return found | {f"length off {passes}": tokens / passes for passes in few_passes.EARLY_PASSES}


def tables() -> dict[str, Table]:
    own = FewPassesOptions(beside=("before",), fractions=(0.1,))
    long = [answer("taught", 100, 20, 0.8), answer("before", 90, 60, 0.4)]
    short = [answer("taught", 100, 20, 0.0), answer("before", 59, 60, 0.0)]
    records = [{"id": str(at), "answers": long} for at in range(3)] + [{"id": "short", "answers": short}]
    found = few_passes.tables(records, About(model="taught", own=own))
    return {table.name: table for table in found}


def mean(table: Table, row: int, column: str) -> float:
    cell = table.rows[row][column]
    return cell.mean if isinstance(cell, Summary) else float(str(cell))


def test_only_questions_with_long_answers_of_every_model_count() -> None:
    whole = tables()["whole"]
    assert [row["N"] for row in whole.rows] == [3, 3]
    assert [mean(whole, row, "tokens a pass") for row in (0, 1)] == [5.0, 1.5]


def test_early_answers_are_held_against_the_models_own_full_run() -> None:
    early = tables()["at 0.1"]
    assert mean(early, 0, "draft: of the full run's") == pytest.approx(1.0)
    assert mean(early, 1, "edge-aware: of the full run's") == pytest.approx(0.5)
    assert mean(early, 1, "draft: F1, difference") == pytest.approx(-0.4)
    assert mean(tables()["length"], 0, "after 2") == 50


def test_wrong_rules_are_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(RequestError, match="rule: expected quota"):
        FewPassesOptions(rules=("most",))


@pytest.mark.skipif(not TINY_BUNDLE.is_dir(), reason="the shipped bundle is missing")
def test_the_measurement_on_the_tests_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_passes, "LONG", 0)
    options = ["--model", "tiny", "--data", "tiny", "--beside", "tiny-dream", "--prompts", "2"]
    assert (
        main(
            [
                "run",
                "few_passes",
                *options,
                "--rules",
                "0.9",
                "0.7",
                "--refine",
                "-o",
                str(tmp_path),
            ]
        )
        == 0
    )
    found = json.loads((tmp_path / "tables.json").read_text())["tables"]
    rows = found["whole"]["rows"]
    assert [(row["model"], row["rule"]) for row in rows] == [
        (model, rule) for model in ("tiny", "tiny-dream") for rule in ("0.9", "0.7")
    ]
    for one, other in zip(rows[:2], rows[2:], strict=True):  # the same weights
        assert one["tokens a pass"] == other["tokens a pass"]
    assert all(row["tokens a pass"]["mean"] > 1 for row in rows)
    for row in found["refined"]["rows"]:
        assert row["changed"]["mean"] <= row["taken back"]["mean"]
