"""What float32 loses: measured against float64, and the same for every way to compute in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from convert.conversion import convert
from convert.source.checkpoint import Checkpoint
from convert.source.original import load_original
from lab.benches.rounding import in_float64, main
from tests.checkpoints import write_tiny_decoder

GEMMA = {"layers": 7, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 9}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_decoder(tmp_path_factory.mktemp("rounding") / "gemma", "Gemma3", **GEMMA)


def test_every_way_in_float32_is_as_far_from_float64(checkpoint: Path, tmp_path: Path) -> None:
    convert(checkpoint, tmp_path / "bundle", variants=("fp32",), threads=1)
    command = [str(checkpoint), str(tmp_path / "bundle"), "-o", str(tmp_path / "out")]
    assert main([*command, "--positions", "400", "--threads", "1"]) == 0
    table = json.loads((tmp_path / "out" / "tables.json").read_text())["tables"]["logits"]
    most = {
        (row["in float32"], row["compared with"]): float(row["largest difference"]) for row in table["rows"]
    }
    theirs, ours, portable = (
        most[name, "float64"] for name in ("transformers", "the graph", "the graph of standard operators")
    )
    assert 0 < theirs < 1e-4
    assert 0 < ours < 3 * theirs
    assert 0 < portable < 3 * theirs
    assert most["the graph", "transformers, float32"] <= 1.1 * (theirs + ours)


def test_float64_is_float64_throughout(checkpoint: Path) -> None:
    """With weights in float64 alone, transformers still computes its norms and angles in float32."""
    model, ids = load_original(Checkpoint(checkpoint)).double(), torch.arange(40)[None]
    with torch.inference_mode():
        mixed = model(ids, use_cache=False).logits
        with in_float64():
            exact = model(ids, use_cache=False).logits
    assert exact.dtype == torch.float64
    assert 0 < float((exact - mixed).abs().max()) < 1e-4
    assert torch.zeros(1).float().dtype == torch.float32, "and nothing else is"
