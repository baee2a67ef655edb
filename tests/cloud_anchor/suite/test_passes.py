"""The measurement of commit rules over few passes, on the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.suite import passes
from cloud_anchor.tiny import shapes
from edge_runtime.bundle.lookup import SHIPPED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quota", ("quota", None, 0.9, 0.1)),
        ("0.5", (0.5, None, 0.9, 0.1)),
        ("eb:0.2", ("eb", None, 0.9, 0.2)),
        ("apd:0.6", ("apd", 0.6, 0.9, 0.1)),
        ("product:0.3", ("product", 0.3, 0.9, 0.1)),
        ("product:0.5@0.8", ("product", 0.5, 0.8, 0.1)),
    ],
)
def test_rules_by_name(text: str, expected: tuple[object, ...]) -> None:
    found = passes.rule_config(text, DenoiseConfig())
    assert (found.commit, found.commit_weight, found.commit_probability, found.entropy_bound) == expected
    assert (found.order, found.stop) == ("confidence", "complete")


@pytest.mark.parametrize(
    "text", ["quota:1", "eb", "eb:x", "eb:1@2", "apd:0.5@1", "product:", "0.9:1", "most"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="rule: expected quota, a probability"):
        passes.rule_config(text, DenoiseConfig())


def cell(right: float, f1: float) -> dict[str, float]:
    return dict.fromkeys(passes.VALUES, 1.0) | {"right": right, "f1": f1}


def test_differences_are_paired_with_the_threshold_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "READOUTS", {passes.EARLY_STOP: None, "edge-aware 0": None})
    plain, better = [(0.0, 0.2), (1.0, 0.6), (0.0, 0.4)], [(1.0, 0.5), (1.0, 0.9), (1.0, 0.7)]
    records = [
        {
            "rules": {
                "apd:1": {"1": {passes.EARLY_STOP: cell(*one), "edge-aware 0": cell(*two)}},
                "0.9": {"1": {passes.EARLY_STOP: cell(*one), "edge-aware 0": cell(*one)}},
            }
        }
        for one, two in zip(plain, better, strict=True)
    ]
    rows = passes.summarise_passes(records, ["apd:1", "0.9"])
    assert [(row["rule"], row["readout"]) for row in rows] == [
        (rule, readout) for rule in ("apd:1", "0.9") for readout in (passes.EARLY_STOP, "edge-aware 0")
    ]
    found = rows[1]
    assert found["right"] == 1
    assert found["right_difference"]["mean"] == pytest.approx(2 / 3)
    assert found["f1_difference"]["mean"] == pytest.approx(0.3)
    assert found["f1_difference"]["low"] == pytest.approx(0.3), "all pairs differ alike"
    assert found["f1_difference"]["verdict"] == "higher"
    assert found["bytes_difference"]["mean"] == 0
    assert rows[3]["f1_difference"]["verdict"] == "undecided"


def test_answers_are_grouped_by_length() -> None:
    records = [{"tokens": tokens} for tokens in (3, 19, 60, 200)]
    assert passes.by_length(records) == {"under 20": records[:2], "60 and more": records[2:]}


@pytest.mark.parametrize("given", ["0", "-1"])
def test_passes_are_checked(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        passes.main(["-o", str(tmp_path), "--passes", "1", given])
    assert "--passes: expected at least 1" in capsys.readouterr().err


@pytest.mark.skipif(
    not (shapes.WEIGHTS / "tiny-dream").exists() or not SHIPPED.exists(), reason="the shipped pair is missing"
)
def test_prompts_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["-o", str(tmp_path), "--threads", "1", "--passes", "2", "1", "--rules", "0.9", "product:0.3"]
    assert passes.main([*base, "--prompts", "1"]) == 0
    assert "right and F1 to its early stop" in capsys.readouterr().out
    assert (tmp_path / "passes.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((tmp_path / "passes.json").read_text())
    assert len(report["rows"]) == 2 * 2 * len(passes.READOUTS)
    assert [part["prompts"] for part in report["lengths"].values()] == [1]
    for row in report["rows"]:
        guided, walked = row["rule"] == "product:0.3", row["readout"] != passes.EARLY_STOP
        assert row["steps"] <= row["passes"]
        assert row["edge_passes"] >= (row["steps"] if guided else walked)
        assert (row["edge_passes"] == 0) == (not guided and not walked)
        assert row["bytes"] > 4

    def fail(*_: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(passes.PassesBench, "measure", fail)
    assert passes.main([*base, "--prompts", "1"]) == 0
    assert passes.main([*base[:-1], "--prompts", "1"]) == 2
    assert "another rules" in capsys.readouterr().err
