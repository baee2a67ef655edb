"""The measurement of commit rules over few passes, on the shipped pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.shipped import PAIRS
from lab.__main__ import main
from lab.case import Case
from lab.conditions import ALONE, ANCHORS
from lab.experiment import About
from lab.experiments import passes
from lab.experiments.equal_bytes import EQUAL
from lab.experiments.length_tables import (
    LENGTH_GROUPS,
    LengthGroup,
    by_length,
    holds_from,
    length_plot,
    length_tables,
)
from lab.statistics import Summary
from lab.store import Store
from lab.tables import Cell, show
from tests.shipped import TINY_BUNDLE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quota", "quota"),
        ("0.5", 0.5),
    ],
)
def test_rules_by_name(text: str, expected: object) -> None:
    found = passes.rule_config(text, DenoiseConfig())
    assert found.commit == expected
    assert (found.order, found.stop) == ("confidence", "complete")


def test_the_papers_rule_has_the_papers_settings() -> None:
    found = passes.rule_config("paper", DenoiseConfig(canvas=64))
    assert (found.order, found.temperature, found.top_p) == ("entropy", 0.2, 0.95)
    assert (found.commit, found.stop, found.canvas) == ("quota", "complete", 64)


@pytest.mark.parametrize(
    "text",
    [
        "quota:1",
        "paper:1",
        "0.9:1",
        "most",
        "0.9/",
        "0.9/x",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="rule: expected quota, a probability"):
        passes.rule_config(text, DenoiseConfig())


FIGURES = ("bytes", "sent", "steps", "edge_passes", "edge_tokens", "gflop")


def cell(right: float, f1: float) -> dict[str, float]:
    return dict.fromkeys(FIGURES, 1.0) | {"right": right, "graded": right, "f1": f1}


def mean_of(cell_: Cell) -> float:
    assert isinstance(cell_, Summary)
    return cell_.mean


def test_differences_are_paired_with_the_threshold_rule() -> None:
    plain, better = [(0.0, 0.2), (1.0, 0.6), (0.0, 0.4)], [(1.0, 0.5), (1.0, 0.9), (1.0, 0.7)]
    records: list[dict[str, Any]] = [
        {
            "id": str(number),
            "tokens": 100,
            "full": {"right": True, "steps": 9},
            "finished": {"0.9": {"right": 1.0}},
            "rules": {
                "0.7": {"1": {passes.EARLY_STOP: cell(*one), passes.SENT_TODAY: cell(*two)}},
                "0.9": {"1": {passes.EARLY_STOP: cell(*one), passes.SENT_TODAY: cell(*one)}},
            },
        }
        for number, (one, two) in enumerate(zip(plain, better, strict=True))
    ]
    own = passes.PassesOptions(passes=(1,), rules=("0.7", "0.9"))
    table, by_length_ = passes.tables(records, About(own=own))
    assert by_length_.rows == table.rows
    assert [(row["rule"], row["sent as"]) for row in table.rows] == [
        (rule, readout) for rule in ("0.7", "0.9") for readout in (passes.EARLY_STOP, passes.SENT_TODAY)
    ]
    found = table.rows[1]
    assert mean_of(found["right"]) == 1
    assert mean_of(found["right, difference"]) == pytest.approx(2 / 3)
    difference = found["F1, difference"]
    assert mean_of(difference) == pytest.approx(0.3)
    assert isinstance(difference, Summary)
    assert difference.low == pytest.approx(0.3), "all pairs differ alike"
    assert mean_of(found["bytes, difference"]) == 0
    assert table.rows[3]["F1, difference"] is None, "the rule itself"
    assert mean_of(table.rows[0]["F1, difference"]) == 0, "sent alike"


def test_answers_are_grouped_by_length() -> None:
    records = [{"tokens": tokens} for tokens in (3, 19, 60, 200)]
    assert by_length(records) == {"under 20": records[:2], "60 and more": records[2:]}


@pytest.mark.parametrize(
    ("curve", "wanted", "found"),
    [
        ({6: 0.5, 12: 0.95, 32: 0.9}, 0.9, 12),
        ({6: 0.95, 12: 0.8, 32: 0.9}, 0.9, 32),
        ({6: 1.0, 12: 1.0}, 0.9, 6),
        ({6: 1.0, 12: 0.0}, 0.9, None),
    ],
)
def test_a_selection_holds_from_where_it_never_falls_below(
    curve: dict[int, float], wanted: float, found: int | None
) -> None:
    assert holds_from(curve, wanted) == found


def test_the_main_table_compares_the_target_with_every_condition() -> None:
    def figures(right: float, f1: float) -> dict[str, float]:
        return {"right": right, "graded": right, "f1": f1, "sent": 3, "bytes": 20}

    readouts = {passes.EARLY_STOP: "early", passes.SENT_TODAY: "edge-aware"}
    records = [
        {
            "id": str(tokens),
            "tokens": tokens,
            "full": {"right": True, "graded": 1.0},
            "controls": {"9": {"edge alone": figures(0, 0.5)}, "76": {"edge alone": figures(0, 0.5)}},
            "rules": {
                "0.7": {
                    "9": {passes.EARLY_STOP: figures(0, 0.8), passes.SENT_TODAY: figures(1, f1)},
                    "76": {passes.EARLY_STOP: figures(1, 1), passes.SENT_TODAY: figures(1, 1)},
                }
            },
        }
        for tokens, f1 in ((60, 0.9), (130, 1.0), (140, 0.95))
    ]
    groups = by_length(records, LENGTH_GROUPS)
    assert {name: len(part) for name, part in groups.items()} == {
        "60 and more": 3,
        "60 to 119": 1,
        "120 and more": 2,
    }
    group = LengthGroup(records, readouts, "0.7", 192)
    assert group.target == "edge-aware, rule 0.7"
    beside, one, holds = length_tables({"60 and more": group})
    assert [row["passes"] for row in one.rows] == ["9 (5%)"] * 3 + ["76 (40%)"] * 3
    alone, early, target = one.rows[:3]
    assert mean_of(alone["right, target less it"]) == 1
    assert mean_of(alone["F1, target less it"]) == pytest.approx(0.45)
    assert mean_of(early["right, target less it"]) == 1
    assert mean_of(early["F1, target less it"]) == pytest.approx(0.15)
    assert target["right, target less it"] is None
    assert [list(row.values()) for row in holds.rows] == [
        ["edge alone", "at none", "at none"],
        ["early, rule 0.7", "76 (40%)", "76 (40%)"],
        ["edge-aware, rule 0.7", "9 (5%)", "9 (5%)"],
    ]
    row = one.rows[0]
    assert (row["passes"], row["condition"]) == ("9 (5%)", "edge alone")
    assert show(row["F1"]).endswith("[0.500, 0.500]")
    assert show(row["F1, target less it"]).startswith("0.450 ")
    assert [row["condition"] for row in beside.rows].count("edge alone") == 2
    assert beside.rows[-1]["right, 60 and more"] == 1
    assert length_plot({"60 and more": group}).startswith(b"\x89PNG")


def test_the_controlled_rule_is_one_that_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("run passes -o none --rules 0.9 --controls 0.7".split()) == 2
    assert "--controls: expected one of 0.9, found 0.7" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["0", "-1"])
def test_passes_are_checked(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "passes", "-o", str(tmp_path), "--passes", "1", given]) == 2
    assert "--passes: expected at least 1" in capsys.readouterr().err


@pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)
def test_prompts_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [*"run passes --threads 1 --prompts 1 -o".split(), str(tmp_path), "--passes", "2", "1"]
    assert main([*base, "--rules", "0.9", "0.7"]) == 0
    assert "sent alike" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "passes.png").read_bytes().startswith(b"\x89PNG")
    tables = json.loads((tmp_path / "tables.json").read_text())["tables"]
    assert len(tables) == 2, "all answers, and those of the one length"
    assert len(tables["passes"]["rows"]) == 2 * 2 * len(passes.READOUTS)
    for row in tables["passes"]["rows"]:
        walked = row["sent as"] != passes.EARLY_STOP
        steps, edge_passes = row["passes run"]["mean"], row["edge passes"]["mean"]
        assert steps <= int(row["passes"])
        assert (edge_passes == 0) == (not walked)
        assert row["bytes"]["mean"] > 4

    def fail(*_: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(Store, "add", fail)
    assert main([*base, "--rules", "0.9", "0.7"]) == 0
    capsys.readouterr()
    assert main([*base, "--rules", "0.9"]) == 2
    assert "another rules" in capsys.readouterr().err


@pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)
def test_each_rule_is_held_against_its_own_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of the last step are other tokens than the plain run's, which would show."""
    real = passes.runs_at

    def runs_at(pipeline: Pipeline, prompts: list[list[int]], rule: str, marks: list[int]) -> Any:
        found = real(pipeline, prompts, rule, marks)
        other = 40 if rule == "0.9" else 60
        for run in found:
            end = max(run)
            run[end] = replace(run[end], ids=[other + n for n in range(run[end].canvas)])
        return found

    judged: list[tuple[list[int], list[int]]] = []
    monkeypatch.setattr(passes, "runs_at", runs_at)
    plain = Case.judged
    monkeypatch.setattr(
        Case,
        "judged",
        lambda case, ids, full: judged.append((list(ids), list(full))) or plain(case, ids, full),
    )
    filled: list[list[int]] = []
    device = Case.fill

    def fill(case: Case, *args: Any) -> Any:
        found = device(case, *args)
        filled.append(found.ids)
        return found

    monkeypatch.setattr(Case, "fill", fill)
    base = [*"run passes --threads 1 --passes 1 --prompts 1 -o".split(), str(tmp_path)]
    assert main([*base, "--rules", "0.9", "0.7", "--controls", "0.9"]) == 0
    assert [ids for ids, _ in judged[1 : len(passes.READOUTS)]] == filled[: len(passes.READOUTS) - 1], (
        "what the device decodes, as of the controls"
    )
    firsts = [full[0] for ids, full in judged if ids != full]
    rules = len(passes.READOUTS)
    assert firsts[:rules] == [40] * rules
    assert firsts[rules : 2 * rules] == [60] * rules
    assert sorted(set(firsts[2 * rules :])) == [40, 60], "the paper's controls against the paper's run"


@pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)
def test_controls_of_a_payload_take_at_most_its_bytes(tmp_path: Path) -> None:
    base = [*"run passes --threads 1 --fractions 0.02 --prompts 1 -o".split(), str(tmp_path)]
    assert main([*base, "--rules", "0.7", "--controls", "0.7"]) == 0
    (record,) = [json.loads(line) for line in (tmp_path / "items" / "passes.jsonl").read_text().splitlines()]
    ((mark, controls),) = record["controls"].items()
    assert mark == "2"
    payload = record["rules"]["0.7"][mark]["edge-aware 0"]
    assert controls[ALONE]["bytes"] == controls[ALONE]["sent"] == 0
    for name in EQUAL:
        assert controls[name]["bytes"] <= payload["bytes"]
    assert controls[ANCHORS]["sent"] <= 2
    assert set(record["finished"]) == {"0.7", "paper"}
    for name in ("report.html", "by_length.png", "tables.json"):
        assert (tmp_path / name).stat().st_size > 500
