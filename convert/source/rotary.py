"""Rotary positions: the angles of every position, scaled as a checkpoint's configuration says.

Responsible for the tables of cosines and sines, and for the scalings of Llama 3 and of longer contexts
("linear"). Not responsible for reading a configuration (see `checkpoint`), or for rotating (see
`graph.dialects`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RotaryScaling:
    """Divides the frequencies by `factor`: all of them, or, with `original_context`, the slow ones alone.

    low, high:        turns within the original context: a frequency with fewer than `low` is divided whole,
                      one with more than `high` not at all, and the share between them is linear (Llama 3).
    original_context: positions the model was first trained on; 0 for a linear scaling.
    """

    factor: float
    low: float = 0.0
    high: float = 0.0
    original_context: int = 0

    def divisors(self, frequencies: Table) -> Table:
        """What each frequency [D/2], in radians per position, is divided by."""
        if not self.original_context:
            return np.full_like(frequencies, self.factor)
        turns = np.float32(self.original_context) * frequencies / np.float32(2 * math.pi)
        kept = np.clip((turns - np.float32(self.low)) / np.float32(self.high - self.low), 0, 1)
        divisors: Table = 1 / (kept + (1 - kept) / np.float32(self.factor))
        return divisors


class RotaryShape(Protocol):
    """What the angles depend on, under the names of a `config.json`."""

    @property
    def head_dim(self) -> int: ...

    @property
    def rope_theta(self) -> float: ...

    @property
    def rope_scaling(self) -> RotaryScaling | None: ...


def frequencies(shape: RotaryShape) -> Table:
    """Radians per position [D/2], computed in float32 as in the model."""
    exponents = np.arange(0, shape.head_dim, 2, dtype=np.float32) / np.float32(shape.head_dim)
    plain: Table = np.float32(1.0) / np.power(np.float32(shape.rope_theta), exponents)
    return plain if shape.rope_scaling is None else plain / shape.rope_scaling.divisors(plain)


def rotary_tables(shape: RotaryShape, context: int) -> tuple[Table, Table]:
    """Cosines and sines [context, D/2] of the rotation angles."""
    angles = np.arange(context, dtype=np.float32)[:, None] * frequencies(shape)[None, :]
    return np.cos(angles), np.sin(angles)


def rotary_bytes(shape: RotaryShape, context: int) -> int:
    """Size of both tables in bytes."""
    return context * shape.head_dim * 4
