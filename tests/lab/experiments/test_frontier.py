"""The measurement of bytes against fidelity, on the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloud_anchor.selection.target import cheapest, read_table
from cloud_anchor.shipped import PAIRS
from lab.__main__ import main
from lab.experiments import frontier
from lab.store import Store
from tests.shipped import TINY_BUNDLE

pytestmark = pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)


def test_one_prompt_is_measured_once_and_gives_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frontier, "FRACTIONS", (0.1,))
    base = [*"run frontier --prompts 1 --threads 1 -o".split(), str(tmp_path)]
    assert main(base) == 0
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    tables = json.loads((tmp_path / "tables.json").read_text())["tables"]
    assert "predictive: the finished answer takes" in tables["frontier"]["note"]
    assert len(tables["frontier"]["rows"]) == len(frontier.SELECTIONS) + 1
    for row in tables["frontier"]["rows"]:
        assert row["exact"] == 1, "round trip"
        assert all(row[codec.label] > 4 for codec in frontier.CODECS)
    whole = tables["frontier"]["rows"][-1]
    assert (whole["selection"], whole["F1"]["mean"]) == ("finished answer", 1)
    assert whole["predictive"] < whole["compact"]
    report = json.loads((tmp_path / "frontier.json").read_text())
    settings = read_table(tmp_path / "frontier.json", report["ranking"])
    assert [s.f1 for s in settings if s.fraction == 1] == [1, 1]
    assert cheapest(settings, 1.0, {"compact", "predictive"}).codec == "predictive"

    def fail(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(Store, "add", fail)
    assert main(base) == 0
    capsys.readouterr()
    assert main([*base, "--rank-tolerance", "0.1"]) == 2
    assert "another rank_tolerance" in capsys.readouterr().err
