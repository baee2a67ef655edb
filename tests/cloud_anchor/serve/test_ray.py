"""Two engines on Ray Serve: the same answers as one, and none lost when an engine dies under load."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.selection.select import Selection
from cloud_anchor.serve.batching.backend import AnchorRequest
from cloud_anchor.serve.batching.jobs import ServedPayload
from cloud_anchor.serve.cluster import ClusterSettings
from cloud_anchor.serve.errors import ServiceError
from edge_runtime.text.chat import as_messages
from tests.cloud_anchor.cloud_checkpoints import make_diffusion_gemma
from tests.cloud_anchor.fake_vllm import FakeVllm
from tests.cloud_anchor.serve.service_runner import Client

ray = pytest.importorskip("ray", reason="Ray is not installed: the extra `ray`")
pytest.importorskip("ray.serve", reason="Ray Serve is not installed: the extra `ray`")
pytestmark = pytest.mark.slow

PROMPT = "Name the river of Torden."
ROOT = Path(__file__).resolve().parents[3]


class FakeStream:
    """What an engine sends back: payloads, refusals, or its death."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script
        self.cancelled = False

    def __aiter__(self) -> FakeStream:
        return self

    async def __anext__(self) -> Any:
        if not self.script:
            raise StopAsyncIteration
        item = self.script.pop(0)
        if isinstance(item, Exception) and not isinstance(item, ServiceError):
            raise item
        return item

    def cancel(self) -> None:
        self.cancelled = True


class FakeHandle:
    """A handle to engines that answer by a script, a list an attempt."""

    def __init__(self, *scripts: list[Any]) -> None:
        self.scripts = list(scripts)
        self.requests: list[AnchorRequest] = []
        self.streams: list[FakeStream] = []
        self.payloads = self

    def remote(self, request: AnchorRequest) -> FakeStream:
        self.requests.append(request)
        self.streams.append(FakeStream(self.scripts.pop(0)))
        return self.streams[-1]


def ready(step: int, last: bool = False, more: bool = False) -> ServedPayload:
    return ServedPayload(b"%d" % step, 1, None, step, 4, 8, delta=False, last=last, more=more)


def ask(handle: FakeHandle, deadline: float = 30.0) -> list[bytes]:
    """The payloads that a front passes on for a request."""
    from cloud_anchor.serve.ray_app import RayBackend

    engines = RayBackend(handle)
    engines._stream = handle
    request = AnchorRequest(as_messages("?"), deadline=deadline)

    async def read() -> list[bytes]:
        return [each.data async for each in engines.payloads(request)]

    return asyncio.run(read())


DIED = ray.exceptions.ActorUnavailableError("gone", None)


@pytest.mark.parametrize(
    ("scripts", "sent"),
    [
        ([[DIED], [ready(2, True)]], [2]),
        (
            [[ready(1), DIED], [ready(1), ready(2), DIED], [DIED], [ready(1), ready(2), ready(4, True)]],
            [1, 2, 4],
        ),
        (  # a chain that an engine did not end is sent again from its first payload
            [
                [ready(1, more=True), ready(1), ready(2, more=True), DIED],
                [ready(1), ready(2, more=True), ready(2, last=True)],
            ],
            [1, 1, 2, 2, 2],
        ),
    ],
)
def test_a_request_of_a_dead_engine_goes_on_at_another(scripts: list[list[Any]], sent: list[int]) -> None:
    handle = FakeHandle(*map(list, scripts))
    assert ask(handle) == [b"%d" % step for step in sent]
    assert all(stream.cancelled for stream in handle.streams)
    first, *others = handle.requests
    assert all(request.deadline is not None and request.deadline < 30 for request in others)
    # What another engine sends may not add to what the first has sent, which may differ in a bit.
    assert not first.self_contained
    assert all(request.self_contained == (sent != [2]) for request in others)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (pickle.loads(pickle.dumps(ServiceError(413, "prompt_too_long", "a", "b", "c"))), "prompt_too_long"),
        (
            ray.serve.exceptions.BackPressureError(num_queued_requests=1, max_queued_requests=1),
            "overloaded",
        ),
        (ray.exceptions.RayTaskError("payloads", "Traceback", ValueError("x")), "internal"),
    ],
)
def test_refusals_and_faults_of_an_engine_keep_their_kind(fault: Exception, code: str) -> None:
    with pytest.raises(ServiceError) as refused:
        ask(FakeHandle([fault]))
    assert refused.value.code == code


def test_a_request_that_no_engine_survives_ends_with_its_deadline() -> None:
    with pytest.raises(ServiceError) as refused:
        ask(FakeHandle(*([DIED] for _ in range(20))), deadline=0.5)
    assert refused.value.code == "deadline_exceeded"


def test_the_application_is_built_with_the_environments_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from cloud_anchor.serve.ray_app import app

    monkeypatch.delenv("CLOUD_ANCHOR_KEYS", raising=False)
    with pytest.raises(RequestError):
        app({})
    monkeypatch.setenv("CLOUD_ANCHOR_KEYS", "k" * 24)
    monkeypatch.setenv("CLOUD_ANCHOR_GPUS", "0.5")
    built = app({})
    assert isinstance(built, ray.serve.Application)
    (engine,) = built._bound_deployment.init_args
    (settings,) = engine._bound_deployment.init_args
    assert (settings.api_keys, settings.gpus) == (("k" * 24,), 0.5)


@pytest.mark.skipif(find_spec("onnx") is None, reason="onnx, which makes the edge bundle, is not installed")
def test_an_engine_may_have_its_model_on_a_server(tmp_path: Path, edge_bundle: Path) -> None:
    """As Ray runs it in a process of its own, without a GPU."""
    from cloud_anchor.serve.ray_app import EngineReplica

    folder = make_diffusion_gemma(tmp_path / "dg", weights=False)
    with FakeVllm(key="secret") as fake:
        environment = {
            "CLOUD_ANCHOR_MODEL": str(folder),
            "CLOUD_ANCHOR_EDGE": str(edge_bundle),
            "CLOUD_ANCHOR_BACKEND": f"vllm:{fake.url}",
            "CLOUD_ANCHOR_BACKEND_KEY": "secret",
            "CLOUD_ANCHOR_KEYS": "none",
        }
        replica = EngineReplica(ClusterSettings.from_environment(environment))

        async def asked() -> list[Any]:
            request = AnchorRequest(as_messages("Hi"), steps=3)
            return [event async for event in replica.payloads(request)]

        (payload,) = asyncio.run(asked())
    assert isinstance(payload, ServedPayload)
    assert (payload.step, payload.last) == (3, True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def settings() -> ClusterSettings:
    return ClusterSettings(
        model="tiny",
        keys="none",
        device="cpu",
        fraction=0.1,
        batch=4,
        queue=16,
        min_engines=2,
        max_engines=2,
        cpus=0.1,
    )


@pytest.fixture(scope="module")
def client(settings: ClusterSettings) -> Iterator[Client]:
    from ray import serve

    from cloud_anchor.serve.ray_app import build

    # On a busy machine a proxy takes longer to start than the 5 s after which Ray Serve replaces it.
    patience = {f"RAY_SERVE_PROXY_{check}_CHECK_TIMEOUT_S": "120" for check in ("READY", "HEALTH")}
    environment = patience | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": environment},
    )
    try:
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": 120})
        serve.run(build(settings), name="anchors")
        yield Client(port)
    finally:
        serve.shutdown()
        ray.shutdown()


def engines() -> set[int]:
    """Process ids of the engines that answer."""
    from ray import serve

    from cloud_anchor.serve.ray_app import ENGINE

    handle = serve.get_deployment_handle(ENGINE, app_name="anchors")
    asked: list[Any] = [handle.pid.remote() for _ in range(20)]
    return {each.result(timeout_s=60) for each in asked}


def test_the_answers_are_those_of_one_machine(client: Client, settings: ClusterSettings) -> None:
    pipeline = Pipeline.open(settings.model)
    plan = pipeline.plan([PROMPT])
    plan = replace(plan, steps=steps_for(settings.fraction, plan.total_steps))
    for how in (None, "paper"):
        (made,) = pipeline.make([PROMPT], plan, Selection(how))
        reply = client.anchors(prompt=PROMPT, **({"select": how} if how else {}))
        assert reply.status == 200
        assert reply.body == pipeline.payload(made)
    assert client.ask("GET", "/v1/contract").json["identity"] == pipeline.form.contract.identity
    assert client.ask("GET", "/readyz").status == 200
    refused = client.anchors(prompt="")
    assert (refused.status, refused.code) == (422, "invalid_request")
    refused = client.anchors(prompt="x " * 3000)
    assert (refused.status, refused.code) == (413, "prompt_too_long")
    events = client.ask(
        "POST", "/v1/anchors/stream", {"prompt": PROMPT, "fractions": [0.05, 0.1], "select": "paper"}
    ).body
    assert events.count(b"event: payload") == 2
    assert events.rstrip().endswith(b"event: done\ndata: {}")


def test_no_request_is_lost_when_an_engine_dies(client: Client) -> None:
    both = engines()
    assert len(both) == 2
    statuses: Counter[int | str] = Counter()
    late: Counter[int | str] = Counter()
    end = time.monotonic() + 20
    killed = threading.Event()

    def ask() -> None:
        while time.monotonic() < end:
            try:
                status: int | str = client.anchors(prompt=PROMPT).status
            except OSError as error:
                status = repr(error)
            statuses[status] += 1
            if killed.is_set():
                late[status] += 1
            if status == 503:
                time.sleep(0.2)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(5)
    os.kill(both.pop(), signal.SIGKILL)
    killed.set()
    for thread in threads:
        thread.join(120)
    assert set(statuses) <= {200, 503}, statuses
    assert late[200] > 8, late
    assert statuses[200] > 10 * statuses[503], statuses
    end = time.monotonic() + 120
    while len(engines()) < 2:  # another one takes its place
        assert time.monotonic() < end
        time.sleep(1)
