"""ONNX Runtime against PyTorch on a random Qwen2: logits, growth, rewinds, and whole forced answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions, Source, fill
from edge_runtime.engine import ort_engine
from edge_runtime.engine.ort_engine import OrtEngine, session_options
from edge_runtime.engine.ort_session import _WHOLE_ATTENTION
from edge_runtime.errors import ContextError, EngineError
from edge_runtime.runtime import EdgeRuntime, FillRequest
from payload import AnchorSet
from tests.edge_runtime.decode.test_forced import one_at_a_time


@pytest.fixture(scope="session")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.open(tiny_bundle, "fp32")


@pytest.fixture(scope="session")
def engine(bundle: Bundle) -> OrtEngine:
    return OrtEngine.open(bundle, threads=1)


@pytest.fixture(scope="session")
def torch_logits(tiny_checkpoint: Path) -> Callable[[list[int]], np.ndarray]:
    """float32[S, V] logits of S tokens, from the original model without a cache."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_checkpoint).float().eval()

    def logits(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            result: np.ndarray = model(torch.tensor([ids])).logits[0].numpy()
        return result

    return logits


@pytest.fixture(scope="session")
def ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(0).integers(0, 300, 300)]


def test_a_whole_pass_gives_the_logits_of_pytorch(
    engine: OrtEngine, torch_logits: Any, ids: list[int]
) -> None:
    engine.rewind(0)
    np.testing.assert_allclose(engine.append(ids, range(300)), torch_logits(ids), atol=2e-5)


def test_chunks_and_rewinds_give_the_same_logits_while_the_buffer_grows(
    bundle: Bundle, torch_logits: Any, ids: list[int]
) -> None:
    engine = OrtEngine.open(bundle, threads=1)
    expected = torch_logits(ids)
    random = np.random.default_rng(1)
    capacities, at = set(), 0
    while at < len(ids):
        chunk = ids[at : at + int(random.integers(1, 40))]
        rows = [row for row in range(len(chunk)) if random.random() < 0.3]
        logits = engine.append(chunk, rows)
        np.testing.assert_allclose(logits, expected[[at + row for row in rows]], atol=2e-5)
        assert logits.shape == (len(rows), 320)
        at += len(chunk)
        capacities.add(engine.capacity)
        if random.random() < 0.4 and at < len(ids):
            at -= int(random.integers(0, min(at, 50)))
            engine.rewind(at)
        assert list(engine.tokens) == ids[:at]
    assert capacities >= {64, 128, 256, 512}


def test_what_was_written_and_rewound_leaves_no_trace(engine: OrtEngine, ids: list[int]) -> None:
    engine.rewind(0)
    engine.append(ids[:20])
    clean = engine.append(ids[20:25], range(5)).copy()
    engine.rewind(20)
    engine.append(ids[100:200])
    engine.rewind(20)
    np.testing.assert_array_equal(engine.append(ids[20:25], range(5)), clean)


def test_a_failing_pass_leaves_the_engine_as_it_was(
    engine: OrtEngine, ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.rewind(0)
    engine.append(ids[:20])
    clean = engine.append(ids[20:25], range(5)).copy()
    engine.rewind(20)

    def refuse(*args: object, **kwargs: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(engine._cache, "capacity", 0)
        patch.setattr("edge_runtime.engine.ort_engine.np.empty", refuse)
        with pytest.raises(EngineError):
            engine.append(ids[20:25], range(5))
    assert engine.length == 20
    np.testing.assert_array_equal(engine.append(ids[20:25], range(5)), clean)


def test_the_context_is_a_limit(bundle: Bundle, ids: list[int]) -> None:
    engine = OrtEngine.open(bundle, context=100, threads=1)
    engine.append(ids[:100], [99])
    assert engine.capacity == 100
    with pytest.raises(ContextError):
        engine.append([1])
    with pytest.raises(ContextError):
        OrtEngine.open(bundle, context=513)


def test_a_graph_that_does_not_load_or_does_not_fit(
    bundle: Bundle, plain_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(EngineError):
        OrtEngine.open(Bundle.open(plain_bundle(tmp_path / "x")))
    shape = type(bundle.manifest.model)(**{**vars(bundle.manifest.model), "num_hidden_layers": 3})
    with pytest.raises(EngineError):
        OrtEngine(bundle.graph_path, shape, context=100, options=session_options(1))


def _anchors(bundle: Bundle, seed: int, length: int | None) -> AnchorSet:
    random = np.random.default_rng(seed)
    places = sorted({int(p) for p in random.integers(0, 40, int(random.integers(0, 30)))})
    ids = tuple(int(i) for i in random.integers(0, 300, len(places)))
    return AnchorSet(tuple(places), ids, 48, bundle.contract, length)


@pytest.mark.parametrize("seed", range(6))
def test_forced_answers_are_those_of_pytorch_one_token_at_a_time(
    engine: OrtEngine, bundle: Bundle, torch_logits: Any, ids: list[int], seed: int
) -> None:
    """The paper's loop (section 3.2) on the original model, against chunks on ONNX Runtime."""
    anchors = _anchors(bundle, seed, length=None if seed % 2 else 45)
    tokens = list(fill(engine, ids[:30], anchors))
    expected = one_at_a_time(lambda text: torch_logits(text)[-1], ids[:30], anchors, anchors.canvas)
    assert [(t.id, t.source is Source.ANCHOR) for t in tokens] == [each[:2] for each in expected]
    assert [t.logprob for t in tokens] == pytest.approx([each[2] for each in expected], abs=1e-4)


def test_two_threads_change_no_token(engine: OrtEngine, bundle: Bundle, ids: list[int]) -> None:
    expected = list(fill(engine, ids[:150], _anchors(bundle, 0, 45)))
    found = list(EdgeRuntime(bundle, threads=2).fill(FillRequest(ids[:150], _anchors(bundle, 0, 45))))
    assert [t.id for t in found] == [t.id for t in expected]
    np.testing.assert_allclose([t.logprob for t in found], [t.logprob for t in expected], atol=1e-4)


@pytest.mark.parametrize("variant", ["fp32", "int8"])
def test_chunk_bounds_change_no_token(tiny_bundle: Path, ids: list[int], variant: str) -> None:
    bundle = Bundle.open(tiny_bundle, variant)
    engine = OrtEngine.open(bundle, threads=1)
    anchors = _anchors(bundle, 3, 45)
    whole = [t.id for t in fill(engine, ids[:100], anchors)]
    engine.rewind(0)
    pieces = fill(engine, ids[:100], anchors, FillOptions(max_chunk=7, max_rows=3))
    assert [t.id for t in pieces] == whole


def test_a_preloaded_model_is_the_model_and_its_errors_come_when_it_is_used(
    bundle: Bundle, plain_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    runtime = EdgeRuntime(bundle, threads=1)
    runtime.preload()
    runtime.preload()
    engine = runtime.engine
    assert runtime.engine is engine
    expected = OrtEngine.open(bundle, threads=1).append([1, 2], [1]).copy()
    np.testing.assert_array_equal(engine.append([1, 2], [1]), expected)
    broken = EdgeRuntime(Bundle.open(plain_bundle(tmp_path / "x")))
    broken.preload()
    with pytest.raises(EngineError):
        _ = broken.engine


@pytest.mark.parametrize("variant", ["fp32", "int4"])
def test_attention_in_blocks_and_whole_give_the_same_tokens(
    bundle: Bundle, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Bundle.open(bundle.path, variant)
    ids = [int(i) for i in np.random.default_rng(1).integers(0, 300, 150)]
    whole = OrtEngine.open(bundle, threads=1)
    monkeypatch.setattr(ort_engine, "MAX_SCORES_BYTES", 0)
    blocks = OrtEngine.open(bundle, threads=1)
    assert _WHOLE_ATTENTION not in os.environ
    for start, stop in ((0, 100), (100, 101), (101, 150)):
        rows = range(stop - start)
        expected = blocks.append(ids[start:stop], rows).copy()
        np.testing.assert_allclose(whole.append(ids[start:stop], rows), expected, atol=2e-2)


def test_the_users_environment_decides_how_attention_is_computed(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_WHOLE_ATTENTION, "0")
    OrtEngine.open(bundle, threads=1)
    assert os.environ[_WHOLE_ATTENTION] == "0"
