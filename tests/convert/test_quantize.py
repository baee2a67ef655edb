"""Block quantisation: what it keeps, how far it may be off, and that ONNX Runtime reads it the same way."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from convert.graph.calibrated import gptq
from convert.graph.quantisation import BLOCK, Blocks, quantize
from tests.convert.dequantize import dequantize

shapes = st.tuples(st.integers(1, 9), st.integers(1, 100))


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weight = rng.standard_normal(draw(shapes)).astype(np.float32)
    weight *= np.float32(10.0 ** draw(st.integers(-6, 4)))
    if draw(st.booleans()):
        weight[rng.random(weight.shape) < 0.9] = 0
    return weight


@given(matrices(), st.sampled_from([4, 8]))
@settings(max_examples=60, deadline=None)
def test_no_weight_moves_farther_than_its_step(weight: np.ndarray, bits: int) -> None:
    blocks = quantize(weight, bits)
    error = np.abs(dequantize(blocks, bits, weight.shape[1]) - weight)
    step = np.abs(np.repeat(blocks.scales, BLOCK, axis=1)[:, : weight.shape[1]])
    lowest = weight / np.where(step == 0, 1, step)  # in steps; the far end on the other side is cut off
    inside = np.abs(lowest) <= (1 << (bits - 1)) - 1
    assert (error[inside] <= 0.5001 * step[inside] + 1e-30).all()
    assert (error <= 1.0001 * step + 1e-30).all()


@given(matrices(), st.sampled_from([4, 8]))
@settings(max_examples=40, deadline=None)
def test_the_farthest_weight_of_a_block_is_exact(weight: np.ndarray, bits: int) -> None:
    back = dequantize(quantize(weight, bits), bits, weight.shape[1])
    for start in range(0, weight.shape[1], BLOCK):
        part, found = weight[:, start : start + BLOCK], back[:, start : start + BLOCK]
        place = np.abs(part).argmax(1)[:, None]
        np.testing.assert_allclose(
            np.take_along_axis(found, place, 1), np.take_along_axis(part, place, 1), rtol=1e-6
        )


def test_rows_are_quantised_alike_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(0).standard_normal((37, 96)).astype(np.float32)
    whole = quantize(weight, 4)
    monkeypatch.setattr("convert.graph.quantisation._CHUNK", 100)
    for left, right in zip(whole, quantize(weight, 4), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("columns", [64, 80])
def test_onnx_runtime_reads_the_same_weights(bits: int, columns: int) -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((24, columns)).astype(np.float32)
    blocks = quantize(weight, bits)
    x = rng.standard_normal((3, columns)).astype(np.float32)
    np.testing.assert_allclose(
        _matmul_nbits(x, blocks, bits, columns), x @ dequantize(blocks, bits, columns).T, atol=1e-4
    )


CORRELATED = np.random.default_rng(2).standard_normal((400, 200)).astype(np.float32)
CORRELATED = CORRELATED @ np.random.default_rng(3).standard_normal((200, 160)).astype(np.float32)
MOMENTS = (CORRELATED.T @ CORRELATED / len(CORRELATED)).astype(np.float64)


@pytest.mark.parametrize("block", [32, 64])
def test_gptq_loses_less_on_correlated_inputs_than_rounding(block: int) -> None:
    weight = np.random.default_rng(1).standard_normal((24, 160)).astype(np.float32)
    blocks = gptq(weight, block, MOMENTS)
    back = dequantize(blocks, 4, 160)
    plain = dequantize(quantize(weight, 4, block), 4, 160)

    def loss(stored: np.ndarray) -> float:
        return float(((CORRELATED @ (stored - weight).T) ** 2).mean())

    assert loss(back) < 0.8 * loss(plain)
    x = np.random.default_rng(4).standard_normal((3, 160)).astype(np.float32)
    np.testing.assert_allclose(_matmul_nbits(x, blocks, 4, 160), x @ back.T, atol=1e-3)


def test_gptq_rounds_to_the_nearest_where_inputs_do_not_go_together() -> None:
    weight = np.random.default_rng(5).standard_normal((16, 160)).astype(np.float32)
    weight[3] = 0
    found, plain = gptq(weight, 32, np.eye(160)), quantize(weight, 4)
    np.testing.assert_allclose(dequantize(found, 4, 160), dequantize(plain, 4, 160), atol=1e-5)


@pytest.mark.parametrize("columns", [160, 150])
def test_gptq_is_the_papers_algorithm(columns: int) -> None:
    """Algorithm 1 column by column, with the inverse and its factor as the paper has them."""
    weight = np.random.default_rng(6).standard_normal((12, columns)).astype(np.float32)
    moments = MOMENTS[:columns, :columns]
    padded = np.zeros((12, 160))
    padded[:, :columns] = weight
    second = np.eye(160)
    second[:columns, :columns] = moments
    second += np.eye(160) * 0.01 * np.diag(moments).mean()
    factor = np.linalg.cholesky(np.linalg.inv(second)).T
    integers, scales = np.empty((12, 160), int), np.empty((12, 5))
    for at in range(160):
        if at % 32 == 0:
            part = padded[:, at : at + 32]
            scales[:, at // 32] = part[np.arange(12), np.abs(part).argmax(1)] / -8
        scale = scales[:, at // 32]
        integers[:, at] = np.clip(np.rint(padded[:, at] / scale), -8, 7) + 8
        error = (padded[:, at] - (integers[:, at] - 8) * scale) / factor[at, at]
        padded[:, at:] -= error[:, None] * factor[at, at:]
    found = gptq(weight, 32, moments)
    np.testing.assert_allclose(found.scales, scales, rtol=1e-5)
    low, high = found.packed & 15, found.packed >> 4
    stored = np.stack([low, high], -1).reshape(12, 160)
    np.testing.assert_array_equal(stored[:, :columns], integers[:, :columns])


def _matmul_nbits(x: np.ndarray, blocks: Blocks, bits: int, columns: int) -> np.ndarray:
    block = blocks.packed.shape[-1] * 8 // bits
    tensors = {"w": blocks.packed, "s": blocks.scales}
    node = helper.make_node(
        "MatMulNBits",
        ["x", *tensors],
        ["y"],
        domain="com.microsoft",
        K=columns,
        N=len(blocks.packed),
        bits=bits,
        block_size=block,
    )
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {"x": x})[0]
    return result
