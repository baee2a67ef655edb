"""A service whose model runs on a server: load, its failures as the service's, and admission."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.model.served import ServedModel
from cloud_anchor.model.vllm import VllmServer
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.serve.batching.backend import AnchorRequest
from cloud_anchor.serve.batching.jobs import CanvasStep, ServedPayload
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.settings import Limits
from cloud_anchor.serve.trace import Tracer
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import as_messages
from payload import Shared, decode
from tests.cloud_anchor.cloud_checkpoints import make_diffusion_gemma
from tests.cloud_anchor.fake_vllm import FakeVllm, canvas_of
from tests.cloud_anchor.serve.service_runner import Client, Reply, local, served

PLAN = DenoiseConfig(canvas=16, total_steps=12, steps=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_diffusion_gemma(tmp_path_factory.mktemp("asking") / "dg", weights=False)


Serving = Callable[..., AbstractContextManager[tuple[Client, FakeVllm]]]


@pytest.fixture
def serving(folder: Path, edge_bundle: Path) -> Serving:
    """Starts a service and the server that it asks."""

    @contextmanager
    def start(limits: Limits, **options: Any) -> Iterator[tuple[Client, FakeVllm]]:
        with FakeVllm(**options) as fake:
            place = f"vllm:{fake.url}"
            pipeline = Pipeline.open(str(folder), edge=edge_bundle, backend=place, answers=limits.batch)
            with served(local(pipeline, limits, PLAN), limits) as client:
                yield client, fake

    return start


def server_of(client: Client) -> VllmServer:
    model = client.backend.pipeline.model
    assert isinstance(model, ServedModel)
    assert isinstance(model.server, VllmServer)
    return model.server


def asked(client: Client, count: int) -> list[Reply]:
    """The replies to questions of as many devices at once."""
    with ThreadPoolExecutor(count) as pool:
        return list(
            pool.map(lambda n: client.anchors(prompt=f"Question {n}", select="confidence"), range(count))
        )


MANY, FEW = Limits(batch=8, queue=100, deadline=30), Limits(batch=2, queue=8, deadline=20)


def test_under_load_nothing_is_lost(serving: Serving) -> None:
    with serving(MANY, step_seconds=0.005, places=4) as (client, fake):
        replies = asked(client, 60)
        client.wait_until_idle()
        form = client.backend.pipeline.form
    assert Counter(reply.status for reply in replies) == {200: 60}
    for n, reply in enumerate(replies):
        ids = form.ids(f"Question {n}")
        anchors = decode(reply.body, Shared(form.contract, ids, form.tokenizer))
        final, chances = canvas_of(list(ids), 3, 16, fake)
        assert anchors.by_position == {p: final[p] for p in range(9) if chances[p] >= 0.3}
        assert anchors.length == 9
    assert fake.most_running == 4


def test_failures_of_the_server_are_errors_of_the_service(serving: Serving) -> None:
    """Every request has an answer: its payload, or the error that says whose fault it was."""
    kinds = [None, "busy", None, "error", None, "drop", None, "garbage"]
    with serving(MANY) as (client, fake):
        number = iter(range(10_000))
        fake.fault = lambda: kinds[next(number) % len(kinds)]
        replies = asked(client, 64)
        fake.fault = lambda: None
        assert client.anchors(prompt="?", select="confidence").status == 200
        client.wait_until_idle()
    found = Counter((reply.status, "" if reply.status == 200 else reply.code) for reply in replies)
    assert sum(found.values()) == 64
    assert found[200, ""] >= 20
    assert found[502, "backend_failed"] >= 10
    assert set(found) <= {(200, ""), (502, "backend_failed"), (503, "overloaded")}
    assert not any(b"stack trace" in reply.body for reply in replies), "the server's words stay in the log"


def test_a_server_that_hangs_misses_the_deadline(serving: Serving) -> None:
    with serving(replace(FEW, deadline=1)) as (client, fake):
        fake.faults.append("hang")
        reply = client.anchors(prompt="?", select="confidence")
        assert (reply.status, reply.code) == (504, "deadline_exceeded")
        assert client.anchors(prompt="?", select="confidence").status == 200


def test_a_server_that_is_away_leaves_the_service_unready(serving: Serving) -> None:
    with serving(FEW) as (client, fake):
        server = server_of(client)
        server.client = replace(server.client, sleep=lambda _: None)
        assert client.ask("GET", "/readyz").status == 200
        fake.fault = lambda: "busy"
        for _ in range(3):
            reply = client.anchors(prompt="?", select="confidence")
            assert (reply.status, reply.code) == (503, "overloaded")
            assert int(reply.headers["retry-after"]) >= 1
        assert client.ask("GET", "/readyz").status == 503
        assert client.ask("GET", "/healthz").status == 200, "a restart would not help"


def test_what_a_server_does_not_tell_or_have_is_not_offered_and_not_asked_for(
    serving: Serving, edge: EdgeRuntime
) -> None:
    with serving(FEW) as (client, fake):
        assert Tracer(client.backend, edge).columns == ["edge-aware", "alone"]
        assert client.ask("GET", "/v1/contract").json["selections"] == ["edge-aware", "confidence"]
        reply = client.anchors(prompt="?", select="paper")
        assert (reply.status, reply.code) == (422, "invalid_request")
        assert client.anchors(prompt="?").status == 200
        assert len(fake.requests) == 2, "the first answer of all, and the one that is right"


def test_a_stream_has_a_payload_of_each_share(serving: Serving) -> None:
    with serving(FEW) as (client, fake):
        fields = {"prompt": "Hi", "fractions": [0.1, 0.25, 0.5], "select": "confidence"}
        reply = client.ask("POST", "/v1/anchors/stream", fields)
    steps = [data["step"] for name, data in reply.events if name == "payload"]
    assert steps == [1, 3, 6]
    assert [body["vllm_xargs"]["diffusion_max_steps"] for body in fake.requests[1:]] == steps


def test_a_watched_answer_has_a_few_canvases(serving: Serving) -> None:
    """Each is a run from the beginning, so not one of every step."""

    async def watched(backend: LocalBackend) -> list[object]:
        request = AnchorRequest(as_messages("Hi"), steps=12, select="confidence")
        return [event async for event in backend.watch(request)]

    with serving(FEW) as (client, _):
        *canvases, last = asyncio.run(watched(client.backend))
    steps = [each.run.steps for each in canvases if isinstance(each, CanvasStep)]
    assert steps == [1, 3, 5, 7, 9, 11, 12]
    assert isinstance(last, ServedPayload)
    assert last.last
    assert last.step == 12
