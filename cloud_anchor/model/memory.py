"""The memory that a diffusion model and a denoising step take, and the number format that follows from it.

Responsible for estimates before anything is loaded, a little too high on purpose, and for the default number
format. Not responsible for loading (see `checkpoint`). Graphics memory is not estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from cloud_anchor.errors import MemoryLackError, require
from common.progress import Progress
from edge_runtime.system import Processor, available_memory

FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

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


class Sizes(NamedTuple):
    """The sizes of a model that its memory is estimated by; parameters: number of weights.

    intermediate_size: inner values of a position, of all its experts.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    parameters: int


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes that a model takes in one number format.

    step: of a denoising step: the logits of every position of the batch, and the activations. beside: other
    models in the same process. mapped: weights that stay in a file, of which memory holds what it has room
    for.
    """

    dtype: torch.dtype
    weights: int
    step: int
    beside: int = 0
    mapped: int = 0

    @classmethod
    def of(cls, sizes: Sizes, dtype: torch.dtype, answers: int, canvas: int, beside: int = 0) -> MemoryNeeds:
        """Of answers denoised together; prompts are taken to be as long as the canvas."""
        positions, size = answers * canvas, dtype.itemsize
        logits = positions * sizes.vocab_size * (_TYPED * size + _WIDE * 4)
        activations = 2 * positions * size * (3 * sizes.intermediate_size + 8 * sizes.hidden_size)
        return cls(dtype, sizes.parameters * size, logits + activations, beside)

    @property
    def total(self) -> int:
        return int((self.weights + self.step) * _MARGIN) + self.beside + _BASE

    def check(self, source: str, free: int | None) -> None:
        """Raises MemoryLackError where less is free than is needed; `source` names the model."""
        if free is None or self.total <= free:
            return
        if self.dtype == torch.float32 and not self.mapped:
            remedy = "Use --dtype bfloat16, or close other programs."
        elif self.weights + self.beside + _BASE < free:
            remedy = "Use a smaller batch or canvas, or close other programs."
        else:
            remedy = "Close other programs, or use a larger machine or a GPU."
        kind = str(self.dtype).removeprefix("torch.")
        weights = f"{self.weights / _GIB:.1f} of weights in {kind}"
        if self.mapped:
            weights = f"without the weights, {self.mapped / _GIB:.1f} GiB that stay in the file"
        raise MemoryLackError(
            f"{source}: expected {self.total / _GIB:.1f} GiB of available memory "
            f"({weights}, {self.step / _GIB:.1f} of logits and "
            f"activations), found {free / _GIB:.1f} GiB. {remedy}"
        )


def choose_format(
    needs: Callable[[torch.dtype], MemoryNeeds], free: int | None, processor: Processor
) -> tuple[torch.dtype, str | None]:
    """The number format on a processor, and in words why it is bfloat16; None where it is float32.

    Large models are bound by the memory that they read, so they are run in bfloat16 where the processor
    computes in it; any model is where float32 does not fit.
    """
    wide, narrow = needs(torch.float32), needs(torch.bfloat16)
    if wide.weights > SMALL and "bf16" in (processor.features or ()):
        reason = "which this processor computes in hardware; --dtype float32 takes twice the memory"
        return torch.bfloat16, reason
    if free is not None and narrow.total <= free < wide.total:
        reason = f"since float32 needs {wide.total / _GIB:.1f} GiB of memory and {free / _GIB:.1f} are free"
        return torch.bfloat16, reason
    return torch.float32, None


def number_format(
    needs: Callable[[torch.dtype], MemoryNeeds],
    asked: str | None,
    place: torch.device,
    source: str,
    progress: Progress,
) -> torch.dtype:
    """The number format asked for, else bfloat16 on a GPU and on a processor what `choose_format` says.

    Raises RequestError for an unknown one, and MemoryLackError where the model does not fit the memory.
    """
    require("dtype", asked is None or asked in FORMATS, ", ".join(FORMATS), asked)
    kind = FORMATS[asked] if asked else torch.bfloat16
    if place.type != "cpu":
        return kind
    free, reason = available_memory(), None
    if asked is None:
        kind, reason = choose_format(needs, free, Processor.detect())
    needs(kind).check(source, free)
    if reason:
        progress.say(f"bfloat16, {reason}")
    return kind
