"""The measurement of bytes against fidelity, and the counts behind codec predictive, on the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.selection.target import cheapest, read_table
from cloud_anchor.suite import frontier
from cloud_anchor.tiny import count_adaptive, shapes
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.runtime import EdgeRuntime
from payload.codecs import adaptive_counts
from payload.codecs.naming import BUCKETS, WAYS

pytestmark = pytest.mark.skipif(
    not (shapes.WEIGHTS / "tiny-dream").exists() or not SHIPPED.exists(), reason="the shipped pair is missing"
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


def test_the_counts_have_their_form_and_can_be_made_again() -> None:
    edge = EdgeRuntime.open(SHIPPED, threads=1)
    texts = list(count_adaptive.observed(edge, 4, seed=1))
    tables = count_adaptive.count(texts, edge.bundle.contract.vocab_size + 1)
    made: dict[str, Any] = {}
    exec(count_adaptive.source(tables, 4), made)
    for name in tables:
        shipped = getattr(adaptive_counts, name)
        assert _form(made[name]) == _form(shipped)
    assert _form(adaptive_counts.FIRST_WAYS) == ((WAYS,) * 2,) * BUCKETS
    assert made["STEP"] == adaptive_counts.STEP


def _form(table: Any) -> Any:
    """The table's nesting, with the length of every distribution; all sizes must be at least 1."""
    if all(isinstance(each, int) for each in table):
        assert min(table) >= 1
        return len(table)
    return tuple(_form(each) for each in table)
