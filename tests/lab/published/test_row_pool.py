"""Rows of one pass: each answer is the one that the engine alone gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cloud_anchor.errors import RequestError
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from lab.published.row_pool import SHORT, PooledRow, RowPool, graph_of_rows
from payload import AnchorSet
from tests.shipped import TINY_BUNDLE

Job = tuple[list[int], AnchorSet]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(TINY_BUNDLE)


@pytest.fixture(scope="module")
def jobs(bundle: Bundle) -> list[Job]:
    """Three prompts; anchors nowhere, in a leading run, and scattered in runs of all sizes."""
    rng = random.Random(0)
    found: list[Job] = []
    for question in ("Tell me about Torden: its river and dish.", "What is 3 plus 4?", "Who?"):
        prompt = bundle.form.ids(question)
        for places in ([], list(range(7)), list(range(SHORT + 9)), sorted(rng.sample(range(30), 17))):
            ids = [rng.randrange(200, bundle.contract.vocab_size) for _ in places]
            length = rng.choice([None, 34])
            found.append((prompt, AnchorSet(tuple(places), tuple(ids), 40, bundle.contract, length)))
    return found


def answers(stats: list[FillStats]) -> Callable[[Job, Engine], list[int]]:
    def do(job: Job, engine: Engine) -> list[int]:
        prompt, anchors = job
        if isinstance(engine, PooledRow):
            engine.share(prompt)
        one = FillStats()
        stats.append(one)
        return [token.id for token in fill(engine, prompt, anchors, FillOptions(score_anchors=False), one)]

    return do


@pytest.mark.parametrize("size", [1, 5])
def test_answers_are_those_of_the_engine_alone(bundle: Bundle, jobs: list[Job], size: int) -> None:
    pool = RowPool(bundle, size, context=256, threads=1)
    alone = OrtEngine.open(bundle, threads=1)
    together: list[FillStats] = []
    single: list[FillStats] = []
    expected = [answers(single)(job, alone) for job in jobs]
    assert pool.work(jobs, answers(together)) == expected
    assert sorted(each.passes for each in together) == sorted(each.passes for each in single)
    assert pool.work(jobs[::-1], answers(together)) == expected[::-1], "whatever the rows hold"


def test_logits_do_not_depend_on_the_other_rows(bundle: Bundle) -> None:
    pool = RowPool(bundle, 3, context=64, threads=1)
    alone = OrtEngine.open(bundle, threads=1)
    texts = [[9, 300, 4], [7, 7], [250, 31, 8, 90]]

    def do(text: list[int], engine: Engine) -> list[np.ndarray]:
        engine.rewind(0)
        engine.append(text)
        return [engine.append([token], [0])[0].copy() for token in (11, 12, 13)]

    for text, found in zip(texts, pool.work(texts, do), strict=True):
        for got, wanted in zip(found, do(text, alone), strict=True):
            np.testing.assert_allclose(got, wanted, atol=0.05)


def test_an_error_of_one_job_is_raised_and_the_pool_goes_on(bundle: Bundle, jobs: list[Job]) -> None:
    pool = RowPool(bundle, 4, context=256, threads=1)
    do = answers([])

    def fails(job: Job, engine: Engine) -> list[int]:
        if job is jobs[2]:
            raise ValueError("no answer")
        return do(job, engine)

    with pytest.raises(ValueError, match="no answer"):
        pool.work(jobs, fails)
    assert len(pool.work(jobs[:2], do)) == 2


def test_a_graph_of_standard_operators_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph(
        [node], "g", [value], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), str(path))
    with pytest.raises(RequestError, match="expected a fused graph"):
        graph_of_rows(SimpleNamespace(graph_path=path))  # type: ignore[arg-type]
