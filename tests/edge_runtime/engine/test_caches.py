"""Growing caches: a graph whose logits are known, through every order of chunks, rewinds and failures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.bundle.manifest import GROWING, ModelShape
from edge_runtime.engine.caches import FixedCache, GrowingCache
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import EngineError

HEADS, SIZE, VOCAB, CONTEXT = 2, 3, 11, 200
SHAPE = ModelShape("Sum", 6, 1, HEADS, HEADS, SIZE, 1, VOCAB, id="sum", revision="0")
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.standard_normal((VOCAB, HEADS, SIZE)).astype(np.float32)
HEAD = RANDOM.standard_normal((HEADS * SIZE, VOCAB)).astype(np.float32)


def expected(ids: list[int], positioned: bool) -> np.ndarray:
    """Logits [S, V]: the sum of all embeddings so far, and the position, through the head."""
    sums = TABLE[ids].cumsum(0).reshape(len(ids), -1) @ HEAD
    result: np.ndarray = sums + np.arange(len(ids))[:, None] * positioned
    return result


@pytest.fixture(scope="module", params=[False, True], ids=["counting", "positioned"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    past, total = [1, HEADS, "past", SIZE], [1, HEADS, "total", SIZE]
    constants = {
        "table": TABLE,
        "head": HEAD,
        "flat": np.array([1, -1, HEADS * SIZE]),
        "axis": np.array(2),
        "first": np.array([0]),
        "one": np.array([1]),
    }
    nodes = [
        ("Gather", ["table", "input_ids"], "embedded", {}),
        ("Transpose", ["embedded"], "new", {"perm": [0, 2, 1, 3]}),
        ("Concat", ["past_key_values.0.key", "new"], "present.0.key", {"axis": 2}),
        ("Concat", ["past_key_values.0.value", "new"], "present.0.value", {"axis": 2}),
        ("CumSum", ["present.0.value", "axis"], "sums", {}),
        ("Shape", ["past_key_values.0.key"], "before", {"start": 2, "end": 3}),
        ("Shape", ["attention_mask"], "after", {"start": 1, "end": 2}),
        ("Slice", ["sums", "before", "after", "two"], "chunk", {}),
        ("Transpose", ["chunk"], "ordered", {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["ordered", "flat"], "hidden", {}),
        ("Gather", ["hidden", "rows"], "chosen", {"axis": 1}),
        ("Squeeze", ["chosen", "first"], "flatter", {}),
        ("MatMul", ["flatter", "head"], "product", {}),
    ]
    constants["two"] = np.array([2])
    inputs = {
        "input_ids": (kinds.INT64, [1, "tokens"]),
        "attention_mask": (kinds.INT64, [1, "total"]),
        "rows": (kinds.INT64, ["rows"]),
        "past_key_values.0.key": (kinds.FLOAT, past),
        "past_key_values.0.value": (kinds.FLOAT, past),
    }
    if request.param:
        inputs["position_ids"] = (kinds.INT64, [1, "tokens"])
        nodes += [
            ("Gather", ["position_ids", "rows"], "places", {"axis": 1}),
            ("Cast", ["places"], "real", {"to": kinds.FLOAT}),
            ("Transpose", ["real"], "column", {"perm": [1, 0]}),
            ("Add", ["product", "column"], "logits", {}),
        ]
    else:
        nodes.append(("Identity", ["product"], "logits", {}))
    outputs = {
        "logits": (kinds.FLOAT, ["rows", VOCAB]),
        "present.0.key": (kinds.FLOAT, total),
        "present.0.value": (kinds.FLOAT, total),
    }
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, names, [out], **more) for op, names, out, more in nodes],
            "sum",
            [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
            [helper.make_tensor_value_info(name, *info) for name, info in outputs.items()],
            [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    path = tmp_path_factory.mktemp("growing") / "model.onnx"
    onnx.save_model(model, str(path))
    return path, bool(request.param)


def opened(path: Path) -> OrtEngine:
    return OrtEngine(path, SHAPE, context=CONTEXT, threads=1, cache_form=GROWING)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_order_of_chunks_and_rewinds_gives_the_logits_of_the_whole_text(
    graph: tuple[Path, bool], data: st.DataObject
) -> None:
    engine = opened(graph[0])
    for _ in range(data.draw(st.integers(1, 8))):
        room = CONTEXT - engine.length
        chunk = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=min(room, 90)))
        rows = sorted(data.draw(st.sets(st.integers(0, len(chunk) - 1), max_size=5)))
        before = list(engine.tokens)
        found = engine.append(chunk, rows)
        wanted = expected([*before, *chunk], graph[1])[[len(before) + row for row in rows]]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
        engine.rewind(data.draw(st.integers(0, engine.length - 1)))


def test_a_failing_pass_leaves_the_cache_as_it_was(
    graph: tuple[Path, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, ids = opened(graph[0]), [int(i) for i in RANDOM.integers(0, VOCAB, 100)]
    engine.append(ids[:60])
    engine.rewind(40)

    def refuse(*arguments: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(engine._graph, "run", refuse)
        with pytest.raises(EngineError, match="out of memory: the cache of 45 tokens"):
            engine.append([1] * 5, [4])
    with monkeypatch.context() as patch:  # while the buffers grow
        patch.setattr("edge_runtime.engine.caches.np.empty", refuse)
        with pytest.raises(EngineError, match="out of memory: the cache of 95 tokens"):
            engine.append([1] * 55, [4])
    assert list(engine.tokens) == ids[:40]
    found = engine.append(ids[40:], range(60))
    np.testing.assert_allclose(found, expected(ids, graph[1])[40:], rtol=1e-4, atol=1e-3)


def test_buffers_double_up_to_the_context_and_are_reused(graph: tuple[Path, bool]) -> None:
    engine, seen = opened(graph[0]), []
    while engine.length < CONTEXT:
        engine.append([1] * 10)
        seen.append(engine.capacity)
    assert sorted(set(seen)) == [64, 128, 200]
    before = addresses(engine)
    engine.rewind(100)
    for _ in range(3):
        engine.append([1])
        assert addresses(engine) == before


def addresses(engine: OrtEngine) -> set[int]:
    """Of the two buffers of the first tensor."""
    past, spare, _ = engine._cache._state  # type: ignore[attr-defined]
    return {buffers[0].ctypes.data for buffers in (past, spare)}


def test_a_fixed_cache_refuses_positions_and_sizes_are_told(graph: tuple[Path, bool]) -> None:
    engine = opened(graph[0])
    each = 4 * 2 * HEADS * SIZE
    assert engine._cache.size(1000) == GrowingCache.copies * each * 1000
    assert FixedCache.copies == 1
    if graph[1]:
        with pytest.raises(EngineError, match=r"\['position_ids'\] differ"):
            OrtEngine(graph[0], SHAPE, context=CONTEXT, threads=1)
