"""Symmetric block quantisation in the layout of MatMulNBits.

A row of the matrix is cut into blocks of consecutive inputs, each with its own scale. Of a block's weights
the one farthest from zero is mapped to the lowest integer, -2^(bits-1), whichever sign it has: the scale may
be negative, and the integer range, which reaches one step farther below zero than above, is used in full.

Responsible for numbers: a weight matrix in, packed integers and scales out. Not responsible for graphs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BLOCK = 32
_CHUNK = 1 << 22  # weights worked on at a time: bounds the temporary arrays to tens of megabytes


class Blocks(NamedTuple):
    """A quantised matrix of N rows (outputs) and K columns (inputs) in blocks of B.

    packed: uint8 [N, ceil(K/B), B*bits/8]; for 4 bits the even column is in the low half of a byte.
    scales: float32 [N, ceil(K/B)].
    weight[n, k] = (integer - 2^(bits-1)) * scale; columns from K on are padding and stand for 0.
    """

    packed: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float32]


def quantize(weight: npt.NDArray[np.float32], bits: int, block: int = BLOCK) -> Blocks:
    """Quantise a matrix [N, K] to 4 or 8 bits per weight, in blocks of `block` columns."""
    rows, columns = weight.shape
    count = -(-columns // block)
    packed = np.empty((rows, count, block * bits // 8), np.uint8)
    scales = np.empty((rows, count), np.float32)
    step = max(1, _CHUNK // max(1, columns))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        packed[part], scales[part] = _quantize_rows(weight[part], bits, block, count)
    return Blocks(packed, scales)


def _quantize_rows(
    weight: npt.NDArray[np.float32], bits: int, block: int, count: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    zero = 1 << (bits - 1)
    values = padded(weight, block).reshape(len(weight), count, block)
    farthest = np.take_along_axis(values, np.abs(values).argmax(-1, keepdims=True), -1)
    scale = farthest / np.float32(-zero)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)
    values *= inverse
    np.rint(values, out=values)
    integers = (np.clip(values, -zero, zero - 1, out=values) + zero).astype(np.uint8)
    return (integers if bits == 8 else pack_nibbles(integers)), scale[..., 0]


def padded(weight: npt.NDArray[np.float32], block: int) -> npt.NDArray[np.float32]:
    """A matrix with columns of zeros behind it, so that blocks divide it."""
    rows, columns = weight.shape
    result = np.zeros((rows, -(-columns // block) * block), np.float32)
    result[:, :columns] = weight
    return result


def pack_nibbles(integers: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Integers of 4 bits [..., K], K even, two to a byte [..., K/2]: the even one in the low half."""
    return np.bitwise_or(integers[..., 0::2], np.left_shift(integers[..., 1::2], 4))
