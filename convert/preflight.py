"""The disk space and memory that a conversion needs, compared with what is free.

Responsible for estimates before anything is loaded; they are a little too high on purpose.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convert.errors import ResourceError
from convert.graph.calibrated import gptq_bytes
from convert.source.checkpoint import Checkpoint
from convert.variants import RECIPES
from edge_runtime.system import available_memory

_GIB = 1 << 30
_BASE = 700 << 20  # Python with torch, transformers and onnxruntime loaded
_MARGIN = 1.1


@dataclass(frozen=True)
class Needs:
    """Bytes needed and bytes free; memory_free is None where the system does not report it."""

    disk: int
    memory: int
    disk_free: int
    memory_free: int | None

    def __str__(self) -> str:
        there = "unknown" if self.memory_free is None else f"{self.memory_free / _GIB:.1f} GiB available"
        disk = f"disk {self.disk / _GIB:.2f} GiB ({self.disk_free / _GIB:.1f} GiB free)"
        return f"{disk}, memory {self.memory / _GIB:.2f} GiB ({there})"

    def check(self, where: Path) -> None:
        """Raises ResourceError where less is free than is needed; where: folder named in the message."""
        if self.disk_free < self.disk:
            raise ResourceError(
                f"{where}: expected {self.disk / _GIB:.2f} GiB of free disk, found "
                f"{self.disk_free / _GIB:.2f} GiB. Free some, or convert fewer variants."
            )
        if self.memory_free is not None and self.memory_free < self.memory:
            raise ResourceError(
                f"expected {self.memory / _GIB:.2f} GiB of available memory, found "
                f"{self.memory_free / _GIB:.2f} GiB. Close other programs, or convert on a larger machine: "
                "the bundle runs anywhere."
            )


def estimate(
    checkpoint: Checkpoint, variants: Sequence[str], context: int, positions: int, folder: Path
) -> Needs:
    """The needs of a conversion into `folder`. positions: most rows of reference logits that are kept."""
    shape = checkpoint.shape
    recipes = [RECIPES[name] for name in variants]
    sizes = [recipe.planned_bytes(shape, context) for recipe in recipes]
    logits = positions * shape.vocab_size * 4
    # PyTorch holds the model in float32; while it loads, one stored file is mapped as well.
    original = shape.parameters * 4 + max(path.stat().st_size for path in checkpoint.files)
    # A session holds a variant's file and, for float32 arithmetic, a copy in the order its kernels read.
    session = max(
        size + (shape.parameters * 4 if recipe.bytes_per_weight >= 2 else size)
        for recipe, size in zip(recipes, sizes, strict=True)
    )
    if any(recipe.calibrated for recipe in recipes):
        original += gptq_bytes(shape)  # PyTorch's model is run again, layer by layer
    parent = next(place for place in (folder, *folder.parents) if place.exists())
    return Needs(
        disk=int((sum(sizes) + logits) * _MARGIN) + (32 << 20),
        memory=int(max(original, session) * _MARGIN) + _BASE,
        disk_free=shutil.disk_usage(parent).free,
        memory_free=available_memory(),
    )
