"""What this room's tests share. One thread: the models are small, and other work may run beside."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from convert.conversion import convert
from tests.checkpoints import write_tiny_qwen, write_tiny_qwen_with_other_merges
from tests.cloud_anchor.cloud_checkpoints import make_dream

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dream_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dream(tmp_path_factory.mktemp("dream") / "tiny")


@pytest.fixture(scope="session")
def edge_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted random edge model with the vocabulary of `dream_folder`, in fp32."""
    folder = tmp_path_factory.mktemp("edge")
    checkpoint = write_tiny_qwen(folder / "checkpoint", seed=7)
    convert(checkpoint, folder / "bundle", variants=("fp32",), threads=1)
    return folder / "bundle"


@pytest.fixture(scope="session")
def other_edge_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with another vocabulary than `dream_folder`'s."""
    folder = tmp_path_factory.mktemp("other_edge")
    checkpoint = write_tiny_qwen_with_other_merges(folder / "checkpoint", seed=8)
    convert(checkpoint, folder / "bundle", variants=("fp32",), threads=1)
    return folder / "bundle"
