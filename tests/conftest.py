"""Models that several rooms' tests share, made once; their libraries are imported on use, for a device."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def dream_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.cloud_anchor.cloud_checkpoints import make_dream

    return make_dream(tmp_path_factory.mktemp("dream") / "tiny")


@pytest.fixture(scope="session")
def edge_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted random edge model with the vocabulary of `dream_folder`, in fp32."""
    from convert.conversion import convert
    from tests.checkpoints import write_tiny_qwen

    folder = tmp_path_factory.mktemp("edge")
    checkpoint = write_tiny_qwen(folder / "checkpoint", seed=7)
    convert(checkpoint, folder / "bundle", variants=("fp32",), threads=1)
    return folder / "bundle"


@pytest.fixture(scope="session")
def other_edge_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with another vocabulary than `dream_folder`'s."""
    from convert.conversion import convert
    from tests.checkpoints import write_tiny_qwen_with_other_merges

    folder = tmp_path_factory.mktemp("other_edge")
    checkpoint = write_tiny_qwen_with_other_merges(folder / "checkpoint", seed=8)
    convert(checkpoint, folder / "bundle", variants=("fp32",), threads=1)
    return folder / "bundle"
