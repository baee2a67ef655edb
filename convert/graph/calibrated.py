"""GPTQ of the layers' matrices, in the layout of MatMulNBits.

Not responsible for the moments that it needs (see `moments`) or for graphs (see `weights`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from convert.graph.moments import InputMoments
from convert.graph.quantisation import Blocks, pack_nibbles, padded
from convert.graph.weights import LayerQuantizer
from convert.source.checkpoint import DecoderShape, FloatArray

_ZERO = 8
_DAMPING = 0.01
"""Share of the mean second moment that is added to each input's: the paper's."""


def gptq(weight: FloatArray, block: int, moments: npt.NDArray[np.float64]) -> Blocks:
    """A matrix [N, K] by GPTQ (arXiv 2210.17323, algorithm 1), symmetric; moments: [K, K] of its inputs.

    The columns after a column compensate for its error, as far as their inputs correlate. With the
    moments as (U + I) D (U + I)^T, U strictly upper triangular, column k is rounded after the errors of those
    before it, times U[:k, k], are added: the same integers (arXiv 2307.13304) with one factorisation and no
    inverse. ONNX Runtime's own function is not used: in 1.31 it takes the column below the diagonal of the
    factor, which is upper triangular, where the algorithm takes the row, so nothing is compensated.
    """
    import torch

    wanted = torch.from_numpy(padded(weight, block)).double().T.contiguous()  # [K, N]
    columns = len(wanted)
    second = torch.zeros(columns, columns, dtype=torch.float64)  # rows and columns from last to first
    at = columns - len(moments)  # the padding, which is zero in the weights as well, comes first
    second[at:, at:] = torch.from_numpy(moments).flip(0, 1)
    second.diagonal()[:at] = 1
    second.diagonal().add_(_DAMPING * float(np.diag(moments).mean()) or 1.0)  # inputs that are never used
    factor = torch.linalg.cholesky(second)
    del second
    factor /= factor.diagonal().clone()
    factor = factor.flip(0, 1)  # U + I
    errors = torch.zeros_like(wanted)
    integers = torch.empty(wanted.shape, dtype=torch.uint8)
    scales = torch.empty(columns // block, wanted.shape[1], dtype=torch.float64)
    for start in range(0, columns, block):
        stop = start + block
        carried = factor[:start, start:stop].T @ errors[:start]
        inside = factor[start:stop, start:stop]
        # What the block would hold if none of it were rounded: its scales are those of algorithm 1.
        kept = torch.linalg.solve_triangular(inside.T, carried, upper=False, unitriangular=True)
        kept += wanted[start:stop]
        farthest = kept.gather(0, kept.abs().argmax(0, keepdim=True))[0]
        scale = scales[start // block] = farthest / -_ZERO
        inverse = torch.where(scale == 0, 0, 1 / scale)
        for row in range(block):
            at = start + row
            target = wanted[at] + carried[row] + inside[:row, row] @ errors[start:at]
            steps = (target * inverse).round().clamp(-_ZERO, _ZERO - 1)
            integers[at] = (steps + _ZERO).to(torch.uint8)
            errors[at] = wanted[at] - steps * scale
    packed = pack_nibbles(integers.T.reshape(len(weight), -1, block).numpy())
    return Blocks(packed, np.ascontiguousarray(scales.T.numpy(), np.float32))


def by_gptq(moments: InputMoments) -> LayerQuantizer:
    """Quantises the matrices of the layers by GPTQ, in the order of the layers."""
    return lambda name, weight, block: gptq(weight, block, moments.of(name))


def gptq_bytes(shape: DecoderShape) -> int:
    """Most memory in bytes that the moments of one layer and GPTQ on one of its matrices take."""
    inputs = max(shape.hidden_size, shape.num_attention_heads * shape.head_dim, shape.intermediate_size)
    outputs = max(shape.hidden_size, shape.intermediate_size)
    # In float64: the moments of a layer (of the widest input and of narrower ones), two matrices on the way
    # to the factor, and the weights, transposed, with their errors.
    return 8 * (4 * inputs**2 + 3 * inputs * outputs)
