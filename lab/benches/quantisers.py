"""Quantisers that are compared with the converter's: k-quant and HQQ, as ONNX Runtime's quantiser has them.

HQQ's zero points are rounded: the kernels that multiply 8-bit integers take integers of 4 bits.
"""

from __future__ import annotations

import numpy as np

from convert.graph.calibrated import packed_blocks
from convert.graph.quantisation import Blocks, padded
from convert.source.checkpoint import FloatArray


def k_quant(weight: FloatArray, block: int) -> Blocks:
    """A matrix [N, K] by k-quant: scale and zero point with the least weighted squared error per block."""
    from onnxruntime.quantization.neural_compressor.weight_only import quant_tensor_k_quant_cpu

    whole = padded(weight, block)
    integers, scales, zeros = quant_tensor_k_quant_cpu(whole, 4, block)
    return packed_blocks(integers, scales, len(weight), zeros)


def hqq(weight: FloatArray, block: int) -> Blocks:
    """A matrix [N, K] by half-quadratic quantisation, its zero points rounded."""
    import torch
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        HQQWeightOnlyQuantConfig,
        HQQWeightOnlyQuantizer,
    )

    quantizer = HQQWeightOnlyQuantizer(HQQWeightOnlyQuantConfig(block_size=block, bits=4))
    whole = padded(weight, block)
    _, scales, zeros = quantizer.quantize_internal(torch.from_numpy(whole), bits=4, group_size=block)
    scale = scales.numpy().reshape(-1, 1)
    zero = np.clip(np.rint(zeros.numpy().reshape(-1, 1)), 0, 15)
    integers = np.clip(np.rint(whole.reshape(-1, block) / scale) + zero, 0, 15)
    return packed_blocks(integers, scale, len(weight), zero)
