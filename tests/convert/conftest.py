"""Shared pieces of the converter's tests: one random checkpoint, and engines on graphs made from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the converter needs PyTorch")

from convert.source.checkpoint import Checkpoint
from tests.checkpoints import write_tiny_qwen


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_qwen(tmp_path_factory.mktemp("checkpoint") / "tiny-random")


@pytest.fixture(scope="session")
def checkpoint(checkpoint_folder: Path) -> Checkpoint:
    return Checkpoint(checkpoint_folder)


@pytest.fixture
def ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(7).integers(0, 300, 40)]
