"""The measurement of bytes against fidelity, on the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.selection.target import cheapest, read_table
from cloud_anchor.shipped import PAIRS
from lab.experiments import frontier
from tests.shipped import TINY_BUNDLE

pytestmark = pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)


def test_one_prompt_is_measured_once_and_gives_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frontier, "FRACTIONS", (0.1,))
    base = ["-o", str(tmp_path), "--prompts", "1", "--threads", "1"]
    assert frontier.main(base) == 0
    shown = capsys.readouterr().out
    assert "predictive: the finished answer takes" in shown
    report = json.loads((tmp_path / "frontier.json").read_text())
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert len(report["rows"]) == len(frontier.SELECTIONS) + 1
    for row in report["rows"]:
        for codec in frontier.CODECS:
            assert row[codec.label]["exact"] == 1, "round trip"
            assert row[codec.label]["bytes"] > 4
    whole = report["rows"][-1]
    assert whole["fraction"] == 1
    assert whole["predictive"]["f1"] == whole["compact"]["f1"] == 1
    assert whole["predictive"]["bytes"] < whole["compact"]["bytes"]
    settings = read_table(tmp_path / "frontier.json", report["ranking"])
    assert cheapest(settings, 1.0, {"compact", "predictive"}).codec == "predictive"

    def fail(*_: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(frontier.FrontierBench, "item", fail)
    assert frontier.main(base) == 0
    assert frontier.main([*base, "--guard", "0.1"]) == 2
    assert "another guard" in capsys.readouterr().err
