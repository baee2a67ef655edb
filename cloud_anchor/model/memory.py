"""The memory that a diffusion model and a denoising step take, and the number format that follows from it.

Responsible for estimates before anything is loaded, a little too high on purpose, and for the default number
format. Not responsible for loading (see `checkpoint`). Graphics memory is not estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from cloud_anchor.errors import MemoryLackError
from edge_runtime.system import Processor, available_memory

_GIB = 1 << 30
_BASE = 700 << 20  # Python with torch, transformers and onnxruntime loaded
_MARGIN = 1.05

SMALL = 1 << 30
"""Bytes of float32 weights up to which a model stays in float32 where that fits: nothing is gained there."""

_TYPED, _WIDE = 4, 3
"""Arrays of the size of the logits alive at once in a step, in the model's format and in float32.

Measured where a nucleus is sorted as a whole: 20 bytes a logit in bfloat16, 29 in float32; at temperature 0
14 and 16.
"""


class Sizes(Protocol):
    """The sizes of a model that its memory is estimated by."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def parameters(self) -> int: ...


@dataclass(frozen=True)
class Load:
    """Answers denoised together, positions of each, and bytes of other models in the same process."""

    answers: int
    canvas: int
    beside: int = 0


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes that a model takes in one number format, and bytes free; None where the system does not tell.

    step: of a denoising step: the logits of every position of the batch, and the activations.
    """

    dtype: torch.dtype
    weights: int
    step: int
    beside: int
    free: int | None

    @classmethod
    def of(cls, shape: Sizes, dtype: torch.dtype, load: Load, free: int | None) -> MemoryNeeds:
        """Prompts are taken to be as long as the canvas."""
        positions = load.answers * load.canvas
        size = dtype.itemsize
        logits = positions * shape.vocab_size * (_TYPED * size + _WIDE * 4)
        activations = 2 * positions * size * (3 * shape.intermediate_size + 8 * shape.hidden_size)
        return cls(dtype, shape.parameters * size, logits + activations, load.beside, free)

    @property
    def total(self) -> int:
        return int((self.weights + self.step) * _MARGIN) + self.beside + _BASE

    @property
    def fits(self) -> bool:
        return self.free is None or self.total <= self.free

    @property
    def format(self) -> str:
        """The number format's name."""
        return str(self.dtype).removeprefix("torch.")

    def check(self, source: str) -> None:
        """Raises MemoryLackError where less is free than is needed; `source` names the model."""
        if self.fits:
            return
        assert self.free is not None
        raise MemoryLackError(
            f"{source}: expected {self.total / _GIB:.1f} GiB of available memory "
            f"({self.weights / _GIB:.1f} of weights in {self.format}, {self.step / _GIB:.1f} of logits and "
            f"activations), found {self.free / _GIB:.1f} GiB. {self._advice()}"
        )

    def _advice(self) -> str:
        if self.dtype == torch.float32:
            return "Use --dtype bfloat16, or close other programs."
        if self.weights + self.beside + _BASE < (self.free or 0):
            return "Use a smaller batch or canvas, or close other programs."
        return "Close other programs, or use a larger machine or a GPU."


def default_format(shape: Sizes, load: Load, processor: Processor | None = None) -> tuple[str, str | None]:
    """The number format on a processor, and in words why it is bfloat16; None where it is float32.

    processor: default, this machine's. Large models are bound by the memory that they read, so they are run
    in bfloat16 where the processor computes in it; any model is where float32 does not fit.
    """
    free = available_memory()
    wide, narrow = (MemoryNeeds.of(shape, kind, load, free) for kind in (torch.float32, torch.bfloat16))
    if wide.weights > SMALL and "bf16" in ((processor or Processor.detect()).features or ()):
        return "bfloat16", "which this processor computes in hardware; --dtype float32 takes twice the memory"
    if not wide.fits and narrow.fits and free is not None:
        needs, there = f"{wide.total / _GIB:.1f} GiB of memory", f"{free / _GIB:.1f}"
        return "bfloat16", f"since float32 needs {needs} and {there} are free"
    return "float32", None
