"""What this room's tests share. One thread: the models are small, and other work may run beside."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cloud_anchor.cloud_checkpoints import make_dream

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dream_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dream(tmp_path_factory.mktemp("dream") / "tiny")
