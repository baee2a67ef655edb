"""The inverse of `convert.quantize`, to measure what quantisation keeps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from convert.quantize import Blocks


def dequantize(blocks: Blocks, bits: int, columns: int) -> npt.NDArray[np.float32]:
    """The matrix [N, columns] that the blocks stand for."""
    integers = blocks.packed
    if bits == 4:
        integers = np.stack([integers & 15, integers >> 4], axis=-1).reshape(*integers.shape[:2], -1)
    values = (integers.astype(np.float32) - (1 << (bits - 1))) * blocks.scales[..., None]
    matrix: npt.NDArray[np.float32] = values.reshape(len(values), -1)[:, :columns]
    return matrix
