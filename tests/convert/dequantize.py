"""The inverse of `convert.graph.quantisation`, to measure what quantisation keeps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from convert.graph.quantisation import Blocks


def dequantize(blocks: Blocks, bits: int, columns: int) -> npt.NDArray[np.float32]:
    """The matrix [N, columns] that the blocks stand for."""
    integers = blocks.packed if bits == 8 else _nibbles(blocks.packed)
    values = (integers.astype(np.float32) - (1 << (bits - 1))) * blocks.scales[..., None]
    matrix: npt.NDArray[np.float32] = values.reshape(len(values), -1)[:, :columns]
    return matrix


def _nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
