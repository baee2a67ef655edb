"""A stream of a model that writes in blocks: a finished block leaves before the next is written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.model.block_diffusion import BlockModel
from cloud_anchor.model.diffusion_gemma import DiffusionGemma
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.serve.settings import Limits
from edge_runtime.client.client import Client
from payload import Base, Shared, decode
from tests.cloud_anchor.block_cases import write_model
from tests.cloud_anchor.cloud_checkpoints import make_diffusion_gemma
from tests.cloud_anchor.serve.service_runner import local, served

PASS = 0.01
"""Seconds added to each pass, so that times tell."""


@pytest.fixture(params=["Fast_dLLM_Qwen", "sdar", "diffusion_gemma"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    gemma = request.param == "diffusion_gemma"
    if gemma:
        pytest.importorskip("transformers.models.diffusion_gemma")
        folder = make_diffusion_gemma(tmp_path / "model", canvas=32, max_denoising_steps=8)
    else:
        folder = write_model(tmp_path / "model", request.param)
    found = Pipeline.open(str(folder), device="cpu")
    kind, name = (DiffusionGemma, "logits") if gemma else (BlockModel, "run")
    plain = getattr(kind, name)

    def slow(*given: Any) -> Any:
        time.sleep(PASS)
        return plain(*given)

    monkeypatch.setattr(kind, name, slow)
    # nothing ends the answer, so that all blocks are written
    found.model.eos_ids = frozenset()  # type: ignore[misc]
    return found


def plan(pipeline: Pipeline) -> DenoiseConfig:
    return replace(pipeline.plan(), canvas=96, total_steps=24)


@pytest.fixture
def client(pipeline: Pipeline) -> Iterator[Client]:
    with served(local(pipeline, Limits(batch=1, queue=2, deadline=60), plan(pipeline))) as found:
        yield Client(found.url, timeout=60)


def test_a_finished_block_leaves_at_once(pipeline: Pipeline, client: Client) -> None:
    began = time.monotonic()
    times, anchors, base = [], [], None
    shared = Shared(pipeline.form.contract, pipeline.form.ids("Hi"), pipeline.form.tokenizer)
    for received in client.stream("Hi", fractions=[1.0], select="confidence"):
        times.append(time.monotonic() - began)
        found = decode(received.data, replace(shared, base=base if received.delta else None))
        base = Base(received.data, found)
        anchors.append(found)
    assert 3 <= len(times) <= 9
    assert times[0] < 0.6 * times[-1], "the first block's anchors come while the others are written"
    assert times == sorted(times)
    first, last = anchors[0], anchors[-1]
    assert first.length is None
    assert max(first.positions) < 48 < max(last.positions)
    assert first.by_position.items() <= last.by_position.items(), "what is finished stays"

    without = client.stream("Hi", fractions=[0.5, 1.0], select="confidence", blocks=False)
    assert [each.last for each in without] == [False, True]
    assert decode(client.fetch("Hi", fraction=1.0, select="confidence"), shared) == last


def test_what_the_sampler_does_not_have_ends_that_request_alone(pipeline: Pipeline) -> None:
    with served(local(pipeline, Limits(batch=1, queue=2, deadline=60), plan(pipeline))) as client:
        reply = client.anchors(prompt="Hi", order="entropy", select="confidence")
        assert (reply.status, reply.code) == (422, "invalid_request")
        assert client.anchors(prompt="Hi", select="confidence").status == 200
        assert client.ask("GET", "/readyz").status == 200


def test_what_is_taken_back_is_sent_whole(tmp_path: Path) -> None:
    """A payload adds to the one before it only where nothing that was sent has changed."""
    pytest.importorskip("transformers.models.diffusion_gemma")
    folder = make_diffusion_gemma(tmp_path / "model", canvas=32, max_denoising_steps=16)
    pipeline = Pipeline.open(str(folder), device="cpu")
    shared = Shared(pipeline.form.contract, pipeline.form.ids("Hi"), pipeline.form.tokenizer)
    kinds = set()
    with served(local(pipeline, Limits(batch=1, deadline=60), pipeline.plan())) as found:
        base = None
        sent: dict[int, int] = {}
        fractions = [step / 16 for step in range(1, 17)]
        for received in Client(found.url, timeout=60).stream("Hi", fractions=fractions, select="paper"):
            anchors = decode(received.data, replace(shared, base=base if received.delta else None))
            kept = sent.items() <= anchors.by_position.items()
            assert kept or not received.delta
            kinds.add(kept)
            base, sent = Base(received.data, anchors), dict(anchors.by_position)
    assert kinds == {True, False}
