"""Shared pieces of the converter's tests: one random checkpoint and its bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the converter needs PyTorch")

from convert import Thresholds
from convert import convert as run_convert
from convert.source.checkpoint import Checkpoint
from convert.variants import RECIPES
from tests.checkpoints import write_tiny_qwen

# Random weights have no margins between their first and second choices, so few bits flip many of them.
LOOSE = {
    "fp16": Thresholds(top1=0.97, mean_kl=1e-3),
    "int8": Thresholds(top1=0.85, mean_kl=0.01),
    "int4": Thresholds(top1=0.2),
}


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_qwen(tmp_path_factory.mktemp("checkpoint") / "tiny-random")


@pytest.fixture(scope="session")
def checkpoint(checkpoint_folder: Path) -> Checkpoint:
    return Checkpoint(checkpoint_folder)


@pytest.fixture(scope="session")
def bundle_folder(checkpoint_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint's bundle with every variant."""
    out = tmp_path_factory.mktemp("bundles") / "tiny"
    run_convert(checkpoint_folder, out, variants=tuple(RECIPES), thresholds=LOOSE, threads=1)
    return out


@pytest.fixture
def ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(7).integers(0, 300, 40)]
