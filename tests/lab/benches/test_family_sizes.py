"""What the families take at their published sizes."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers.models.diffusion_gemma")

from lab.benches.family_sizes import EFFICIENCY, MACHINES, published


def test_the_sizes_are_those_published() -> None:
    rows = {row["model"]: row for row in (each.row() for each in published())}
    stated = {"Dream 7B": 7.6, "LLaDA 8B": 8.0, "Fast-dLLM v2 1.5B": 1.5, "SDAR 1.7B": 1.7, "SDAR 8B": 8.2}
    for name, weights in stated.items():
        assert rows[name]["10^9 weights"] == pytest.approx(weights, abs=0.06)
    gemma = rows["DiffusionGemma 26B-A4B"]
    assert gemma["10^9 weights"] == pytest.approx(25.3, abs=0.3)
    assert gemma["used by a position"] == pytest.approx(3.9, abs=0.2)
    assert gemma["machine"] == MACHINES[2].name


def test_the_estimate_agrees_with_the_one_timing_there_is() -> None:
    """Dream-7B on an A100: 42 ms (table 6 of the paper)."""
    dream, a100 = published()[0], MACHINES[2]
    operations = 2 * dream.sizes.parameters * dream.positions
    assert operations / (a100.teraflops * 1e9 * EFFICIENCY) == pytest.approx(42, rel=0.02)
