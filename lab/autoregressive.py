"""An autoregressive model in PyTorch: the target that a diffusion model drafts for.

Responsible for opening Qwen2 checkpoints, and for what tables say of them. Not responsible for decoding (see
`lab.drafting.speculation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cloud_anchor.errors import CheckpointError


@dataclass(frozen=True)
class Autoregressive:
    """A causal language model. name: for tables. parameters: its size."""

    net: Any
    name: str

    @property
    def parameters(self) -> int:
        return int(sum(p.numel() for p in self.net.parameters()))

    @classmethod
    def load(cls, folder: Path, *, device: str | None = None) -> Autoregressive:
        """A Qwen2 checkpoint; bfloat16 on CUDA, else float32. Raises CheckpointError."""
        from lab.pairs.row_weights import open_qwen2

        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
        try:
            net = open_qwen2(folder, dtype=dtype, local_files_only=True)
        except (OSError, ValueError, ImportError) as error:
            raise CheckpointError(f"{folder}: expected a Qwen2 checkpoint, found: {error}") from error
        return cls(net.to(place).eval(), folder.name)
