"""The main table: from records made by hand, and its measurement on the shipped pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from lab.__main__ import main
from lab.case import Case
from lab.conditions import ALONE, ANCHORS
from lab.experiment import About
from lab.experiments import passes
from lab.statistics import Summary
from lab.tables import Cell


def mean_of(cell: Cell) -> float:
    assert isinstance(cell, Summary)
    return cell.mean


def test_the_main_table_compares_the_default_with_every_condition() -> None:
    def answer(condition: str, after: int, right: float, f1: float) -> dict[str, Any]:
        figures = {"right": right, "graded": right, "f1": f1, "sent": 3, "bytes": 20}
        return {"condition": condition, "passes": after} | figures

    records = [
        {
            "id": str(tokens),
            "tokens": tokens,
            "right": 1.0,
            "graded": 1.0,
            "answers": [
                answer(condition, after, *figures)
                for after in (9, 76)
                for condition, figures in {ALONE: (0, 0.5), passes.AWARE: (1, f1)}.items()
            ],
        }
        for tokens, f1 in ((60, 0.9), (130, 1.0), (140, 0.95))
    ]
    beside, *each = passes.tables(records, About(total_steps=192))
    assert [table.name for table in each] == ["length 60 and more", "length 60 to 119", "length 120 and more"]
    alone, target = each[0].rows[:2]
    assert [row["passes"] for row in each[0].rows] == ["9 (5%)"] * 2 + ["76 (40%)"] * 2
    assert mean_of(alone["right, target less it"]) == 1
    assert mean_of(alone["F1, target less it"]) == pytest.approx(0.45)
    assert target["right, target less it"] is None
    assert [row["condition"] for row in beside.rows].count(ALONE) == 2
    assert beside.rows[-1]["right, 60 and more"] == 1
    assert beside.rows[-1]["passes"] == "192 (100%)"


COMMAND = "run passes --threads 1 --fractions 0.02 --prompts 1 -o".split()


def test_controls_of_a_payload_take_at_most_its_bytes(tmp_path: Path) -> None:
    assert main([*COMMAND, str(tmp_path)]) == 0
    (record,) = [json.loads(line) for line in (tmp_path / "items" / "passes.jsonl").read_text().splitlines()]
    found = {row["condition"]: row for row in record["answers"]}
    assert {row["passes"] for row in record["answers"]} == {2}
    assert found[ALONE]["bytes"] == found[ALONE]["sent"] == 0
    for name in passes.EQUAL:
        assert found[name]["bytes"] <= found[passes.AWARE]["bytes"]
    assert found[ANCHORS]["sent"] <= 2


def test_each_rule_is_held_against_its_own_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of the last step are other tokens than the plain run's, which would show."""
    real, judge = passes.runs_at, Case.judged

    def runs_at(pipeline: Pipeline, prompts: list[list[int]], config: DenoiseConfig, marks: list[int]) -> Any:
        found = real(pipeline, prompts, config, marks)
        other = 40 if config.commit == 0.9 else 60
        for run in found:
            end = max(run)
            run[end] = replace(run[end], ids=[other + n for n in range(run[end].canvas)])
        return found

    held: list[int] = []
    monkeypatch.setattr(passes, "runs_at", runs_at)
    monkeypatch.setattr(
        Case, "judged", lambda case, ids, full: held.append(full[0]) or judge(case, ids, full)
    )
    assert main([*COMMAND, str(tmp_path)]) == 0
    readouts = 2
    assert held[:readouts] == [40] * readouts
    assert sorted(set(held[readouts:-1])) == [40, 60], "the paper's controls against the paper's run"
