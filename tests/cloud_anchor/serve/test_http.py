"""The service over real sockets: answers, refusals, hostile clients, keys, overload."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.selection.select import Selection
from cloud_anchor.serve.http.keys import ApiKeys
from edge_runtime.client.client import Client as ServiceClient
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet, Base, Codec, Extras, Shared, decode, encode, peek
from payload.header import MIN_PAYLOAD_BYTES
from tests.cloud_anchor.cloud_checkpoints import make_diffusion_gemma
from tests.cloud_anchor.serve.service_runner import LIMITS, PLAN, Client, local, served

PROMPT = "Where does the river end?"
KEY = "k" * 24


def alone(pipeline: Pipeline, steps: int, selection: Selection | None = None) -> bytes:
    """The payload that the command line would have made."""
    (made,) = pipeline.make([PROMPT], replace(PLAN, steps=steps), selection)
    return pipeline.payload(made)


def test_a_payload_is_the_one_of_the_command_line(client: Client, pipeline: Pipeline) -> None:
    reply = client.anchors(prompt=PROMPT)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/octet-stream")
    assert reply.body == alone(pipeline, 4)
    assert peek(reply.body).extras.prompt is None
    assert client.anchors(prompt=PROMPT, fraction=0.5).body == alone(pipeline, 8)
    assert client.anchors(prompt=PROMPT, steps=2, select="paper").body == alone(
        pipeline, 2, Selection("paper")
    )
    assert client.anchors(messages=[{"role": "user", "content": PROMPT}]).body == reply.body


def test_a_device_with_another_vocabulary(across: Pipeline, other_edge: EdgeRuntime) -> None:
    with served(local(across)) as client:
        reply = client.anchors(prompt=PROMPT)
        assert (reply.status, reply.body) == (200, alone(across, 4))
        assert client.ask("GET", "/v1/contract").json["identity"] == across.form.contract.identity
        fields = {"prompt": PROMPT, "fractions": [0.25, 0.5], "select": "paper"}
        *payloads, _ = client.ask("POST", "/v1/anchors/stream", fields).events
    assert other_edge.read(reply.body, PROMPT).anchors.contract == across.form.contract
    contract, ids = across.form.contract, other_edge.prompt_ids(PROMPT)
    for steps, anchors in zip((4, 8), read(payloads, Shared(contract, ids)), strict=True):
        expected = other_edge.read(alone(across, steps, Selection("paper")), PROMPT).anchors
        assert anchors.by_position == expected.by_position


def test_json_where_json_is_asked_for(client: Client, pipeline: Pipeline) -> None:
    reply = client.ask("POST", "/v1/anchors", {"prompt": PROMPT}, Accept="application/json")
    data = reply.json
    assert base64.b64decode(data["payload"]) == alone(pipeline, 4)
    assert data["contract"] == pipeline.form.contract.identity
    assert (data["step"], data["total_steps"], data["canvas"], data["last"]) == (4, 16, 32, True)


def test_no_more_bytes_than_allowed(client: Client, pipeline: Pipeline) -> None:
    whole = client.anchors(prompt=PROMPT, fraction=1.0).body
    cut = client.anchors(prompt=PROMPT, fraction=1.0, max_bytes=MIN_PAYLOAD_BYTES).body
    assert len(cut) <= MIN_PAYLOAD_BYTES < len(whole)


def predictive(pipeline: Pipeline) -> Shared:
    return replace(pipeline.shared(pipeline.form.ids(PROMPT), predictive=True), prompt_ids=None)


def compact(pipeline: Pipeline) -> Shared:
    return Shared(pipeline.form.contract, pipeline.form.ids(PROMPT))


def test_the_codec_is_the_one_asked_for(client: Client, pipeline: Pipeline) -> None:
    assert client.ask("GET", "/v1/contract").json["codecs"] == ["compact", "predictive", "portable"]
    plain = client.anchors(prompt=PROMPT)
    assert client.anchors(prompt=PROMPT, codec="compact").body == plain.body
    reply = client.anchors(prompt=PROMPT, codec="predictive")
    assert peek(reply.body).codec is Codec.PREDICTIVE
    (made,) = pipeline.make([PROMPT], replace(PLAN, steps=4), codec=Codec.PREDICTIVE)
    assert reply.body == pipeline.payload(made, Codec.PREDICTIVE)
    assert client.anchors(prompt=PROMPT, codec="portable").body == pipeline.payload(made, Codec.PORTABLE)
    assert decode(reply.body, predictive(pipeline)) == made.anchors
    most = len(client.anchors(prompt=PROMPT, codec="predictive", fraction=1.0).body) - 1
    short = client.anchors(prompt=PROMPT, codec="predictive", fraction=1.0, max_bytes=most)
    assert (short.status, len(short.body) <= most) == (200, True)
    assert peek(short.body).codec is Codec.PREDICTIVE


def test_every_payload_without_anchors_fits_the_least_budget(pipeline: Pipeline) -> None:
    contract = pipeline.form.contract
    nothing = AnchorSet.empty(65_536, contract, 65_535)
    extras = Extras(step=65_535, total_steps=65_536)
    assert len(encode(nothing, Shared(contract, [1, 2]), extras=extras)) <= MIN_PAYLOAD_BYTES


def read(payloads: Sequence[tuple[str, Any]], shared: Shared) -> list[AnchorSet]:
    """The anchors after each payload of a stream, as a device reads them."""
    found: list[AnchorSet] = []
    base: Base | None = None
    for _, data in payloads:
        sent = base64.b64decode(data["payload"])
        found.append(decode(sent, replace(shared, base=base if data["delta"] else None)))
        assert len(found[-1]) == data["anchors"]
        base = Base(sent, found[-1])
    return found


@pytest.mark.parametrize(
    ("select", "codec"), [("paper", "compact"), ("edge-aware", "compact"), ("paper", "predictive")]
)
def test_a_stream_sends_payloads_as_steps_go_on(
    client: Client, pipeline: Pipeline, select: str, codec: str
) -> None:
    fields = {"prompt": PROMPT, "fractions": [1.0, 0.25, 0.5], "select": select, "codec": codec}
    reply = client.ask("POST", "/v1/anchors/stream", fields)
    assert reply.headers["content-type"].startswith("text/event-stream")
    *payloads, (last, _) = reply.events
    assert last == "done"
    assert [(name, data["step"], data["last"]) for name, data in payloads] == [
        ("payload", 4, False),
        ("payload", 8, False),
        ("payload", 16, True),
    ]
    shared = compact(pipeline) if codec == "compact" else predictive(pipeline)
    for steps, anchors in zip((4, 8, 16), read(payloads, shared), strict=True):
        expected = decode(alone(pipeline, steps, Selection(select)), compact(pipeline))
        assert (anchors.positions, anchors.ids) == (expected.positions, expected.ids)


@pytest.mark.parametrize(
    ("codec", "most", "when"),
    [
        ("compact", MIN_PAYLOAD_BYTES, {"steps": 16}),
        ("predictive", 45, {"steps": 16}),
        ("compact", 40, {"fractions": [0.5, 1.0]}),
    ],
)
def test_a_stream_with_a_budget_is_a_chain_of_payloads(
    client: Client, pipeline: Pipeline, codec: str, most: int, when: dict[str, Any]
) -> None:
    fields = {"prompt": PROMPT, "codec": codec, "max_bytes": most, **when}
    *payloads, (last, _) = client.ask("POST", "/v1/anchors/stream", fields).events
    assert (last, len(payloads) > 1) == ("done", True)
    assert [data["last"] for _, data in payloads] == [False] * (len(payloads) - 1) + [True]
    assert all(data["bytes"] <= most for _, data in payloads)
    if "steps" in when:  # of one run
        assert [data["delta"] for _, data in payloads] == [False] + [True] * (len(payloads) - 1)
    assert {data["step"] for _, data in payloads} == ({16} if "steps" in when else {8, 16})
    sent = read(payloads, compact(pipeline) if codec == "compact" else predictive(pipeline))[-1]
    (whole,) = pipeline.make([PROMPT], replace(PLAN, steps=16))
    assert whole.anchors.by_position.items() <= sent.by_position.items()


def test_the_contract_of_the_service(client: Client, pipeline: Pipeline) -> None:
    info = client.ask("GET", "/v1/contract").json
    assert info["identity"] == pipeline.form.contract.identity
    assert info["contract"] == pipeline.form.contract.to_json()
    assert info["selections"] == ["edge-aware", "paper", "confidence"]
    assert client.ask("GET", "/healthz").json == {"status": "ok"}
    assert client.ask("GET", "/readyz").json == {"status": "ready"}
    text = client.ask("GET", "/metrics").body.decode()
    assert 'cloud_anchor_requests_total{path="/healthz",status="200"}' in text
    for name in (
        "process_resident_memory_bytes ",
        "cloud_anchor_build_info{",
    ):
        assert f"\n{name}" in text


LONG = "word " * 700

REFUSALS = [
    ({"prompt": ""}, 422, "invalid_request"),
    ({}, 422, "invalid_request"),
    ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, 422, "invalid_request"),
    ({"messages": []}, 422, "invalid_request"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 422, "invalid_request"),
    ({"messages": [{"role": "user", "content": "x"}] * 65}, 422, "invalid_request"),
    ({"prompt": 3}, 422, "invalid_request"),
    ({"prompt": None}, 422, "invalid_request"),
    ({"prompt": "\ud800"}, 422, "invalid_request"),
    ({"prompt": "x", "fraction": 0}, 422, "invalid_request"),
    ({"prompt": "x", "fraction": float("nan")}, 422, "invalid_request"),
    ({"prompt": "x", "fraction": 0.5, "steps": 2}, 422, "invalid_request"),
    ({"prompt": "x", "steps": 17}, 422, "invalid_request"),
    ({"prompt": "x", "steps": True}, 422, "invalid_request"),
    ({"prompt": "x", "steps": 10**400}, 422, "invalid_request"),
    ({"prompt": "x", "codec": "template-gzip"}, 422, "invalid_request"),
    ({"prompt": "x", "max_bytes": 3}, 422, "invalid_request"),
    ({"prompt": "x", "max_bytes": 64, "select": "paper"}, 422, "invalid_request"),
    ({"prompt": "x", "deadline": 0}, 422, "invalid_request"),
    ({"prompt": "x", "deadline": 1e9}, 422, "invalid_request"),
    ({"prompt": "x", "colour": "red"}, 422, "invalid_request"),
    ({"prompt": "x", "contract": "0" * 64}, 409, "contract_mismatch"),
    ({"prompt": LONG}, 413, "prompt_too_long"),
    ({"prompt": "x" * 5000}, 413, "body_too_large"),
    ([1, 2], 422, "invalid_request"),
    (b"{", 400, "malformed_json"),
    (b"", 422, "invalid_request"),
    (b"[" * 4000, 400, "malformed_json"),
    (b"\xff\xfe", 400, "malformed_json"),
]


def test_a_prompt_longer_than_the_edge_models_context_is_refused_at_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pipeline.scorer is not None
    context = len(pipeline.form.ids(PROMPT)) + PLAN.canvas
    monkeypatch.setattr(pipeline.scorer, "context", context)
    longer = PROMPT * 4
    assert context < len(pipeline.form.ids(longer)) < pipeline.model.context
    with served(local(pipeline)) as client:
        for _ in range(4):
            reply = client.anchors(prompt=longer)
            assert (reply.status, reply.code) == (413, "prompt_too_long")
        assert client.ask("GET", "/readyz").status == 200
        assert client.anchors(prompt=PROMPT).status == 200


def test_a_model_that_fails_is_tried_again_and_only_where_a_restart_helps_is_health_bad(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(batch: ContinuousBatch[Any]) -> list[Any]:
        raise ValueError("broken")

    def states(client: Client) -> tuple[int, int]:
        return client.ask("GET", "/readyz").status, client.ask("GET", "/healthz").status

    module = "cloud_anchor.serve.batching.health"
    with served(local(pipeline)) as client:
        with monkeypatch.context() as patch:
            patch.setattr(ContinuousBatch, "step", failing)
            assert [client.anchors(prompt=PROMPT).status for _ in range(4)] == [500, 500, 500, 503]
            assert states(client) == (503, 200)
            patch.setattr(f"{module}.RESTART_SECONDS", 0.0)
            assert states(client) == (503, 503)
        monkeypatch.setattr(f"{module}.RETRY_SECONDS", 0.0)
        assert client.anchors(prompt=PROMPT).status == 200
        assert states(client) == (200, 200)


@pytest.mark.parametrize(("body", "status", "code"), REFUSALS)
def test_bad_requests_are_refused_in_one_form(client: Client, body: Any, status: int, code: str) -> None:
    reply = client.ask("POST", "/v1/anchors", body)
    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/anchors", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("GET", "/v1/anchors/", 404, "unknown_path"),
        ("GET", "/../etc/passwd", 404, "unknown_path"),
        ("BREW", "/v1/contract", 405, "method_not_allowed"),
    ],
)
def test_unknown_paths_and_methods_too(
    client: Client, method: str, path: str, status: int, code: str
) -> None:
    reply = client.ask(method, path)
    assert (reply.status, reply.code) == (status, code)
    assert ("allow" in reply.headers) == (status == 405)


def test_another_content_type_is_named(client: Client) -> None:
    reply = client.ask("POST", "/v1/anchors", b'{"prompt": "x"}', Content_Type="text/plain")
    assert (reply.status, reply.code) == (415, "unsupported_media_type")


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


HEAD = b"POST /v1/anchors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (HEAD + b"Content-Length: 1073741824\r\n\r\n", b"413", b"body_too_large"),  # it is not read
        (b"\x16\x03\x01 hello\r\n\r\n", b"400", b"Invalid HTTP"),
    ],
)
def test_what_is_no_request_is_refused_at_once(
    client: Client, sent: bytes, status: bytes, says: bytes
) -> None:
    with client.connect() as sock:
        sock.sendall(sent)
        answer = read_all(sock)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert says in answer


def test_a_body_that_does_not_end_is_refused_too(client: Client) -> None:
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    sent = 0
    with client.connect() as sock:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with suppress(OSError):  # reset or broken pipe, as the kernel likes
            while sent < 1 << 30:
                sock.sendall(chunk)
                sent += len(chunk)
    assert sent < 1 << 30  # it ends after a second of throwing away, whatever passes in one
    assert client.anchors(prompt=PROMPT).status == 200


@pytest.mark.parametrize(
    ("start", "drip", "says"),
    [
        (b"", b"", b"408 Request Timeout"),
        (b"POST /v1/anch", b"o", b"408 Request Timeout"),
        (HEAD + b"Content-Length: 100\r\n\r\n", b" ", b"body_too_slow"),
    ],
)
def test_a_client_that_sends_a_byte_at_a_time_gets_408(
    client: Client, monkeypatch: pytest.MonkeyPatch, start: bytes, drip: bytes, says: bytes
) -> None:
    monkeypatch.setattr("edge_runtime.endpoint.protocol.HEAD_SECONDS", 1.0)
    began = time.monotonic()
    with client.connect() as sock:
        sock.sendall(start)
        sock.settimeout(0.2)
        answer = b""
        while time.monotonic() < began + 15:
            try:
                part = sock.recv(65536)
            except TimeoutError:
                sock.sendall(drip)
                continue
            except OSError:
                break
            if not part:
                break
            answer += part
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert says in answer
    assert time.monotonic() < began + 5


def test_without_keys_no_page_of_others_is_answered(client: Client, pipeline: Pipeline) -> None:
    """One may point a name of its own at this machine (DNS rebinding)."""
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        for method, path in (("POST", "/v1/anchors"), ("GET", "/metrics")):
            reply = client.ask(method, path, {"prompt": PROMPT}, **headers)
            assert (reply.status, reply.code) == (403, "foreign_request")
    for host in ("localhost", "[::1]", "[::1]:8080", "10.0.2.2:8080"):
        assert client.ask("GET", "/v1/contract", Host=host, Origin=f"http://{host}").status == 200
    with served(local(pipeline), keys=ApiKeys(["none"])) as everyones:
        assert everyones.ask("GET", "/v1/contract", Host="anchors.example").status == 200


@pytest.mark.parametrize("path", ["/v1/anchors", "/v1/anchors/stream"])
def test_a_client_that_leaves_is_out_of_the_batch(
    client: Client, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps({"prompt": PROMPT, **({"fraction": 1.0} if path == "/v1/anchors" else {})}).encode()
    head = HEAD.replace(b"/v1/anchors", path.encode()) + b"Content-Length: %d\r\n\r\n" % len(body)
    for _ in range(6):
        with client.connect() as sock:
            sock.sendall(head + body)
    client.wait_until_idle()
    assert client.anchors(prompt=PROMPT).status == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_overload_is_answered_with_503_and_nothing_is_lost(client: Client) -> None:
    def ask(number: int) -> tuple[int, str | None]:
        reply = client.anchors(prompt=f"{PROMPT} {number}", fraction=1.0)
        if reply.status != 200:
            assert reply.code == "overloaded"
        return reply.status, reply.headers.get("retry-after")

    with ThreadPoolExecutor(40) as pool:
        found = list(pool.map(ask, range(80)))
    statuses = [status for status, _ in found]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= LIMITS.batch + LIMITS.queue
    assert all(wait is not None and int(wait) >= 1 for status, wait in found if status == 503)
    client.wait_until_idle()


def test_keys(pipeline: Pipeline) -> None:
    keys = ApiKeys([KEY, "another-long-key-of-24-c"])
    with served(local(pipeline), keys=keys) as client:
        body = {"prompt": PROMPT}
        for headers in ({}, {"Authorization": "Bearer " + "x" * 24}, {"Authorization": f"Basic {KEY}"}):
            reply = client.ask("POST", "/v1/anchors", body, **headers)
            assert (reply.status, reply.code) == (401, "unauthorized")
            assert reply.headers["www-authenticate"] == "Bearer"
            assert KEY not in reply.body.decode()
        assert client.ask("POST", "/v1/anchors", body, Authorization=f"Bearer {KEY}").status == 200
        assert client.ask("GET", "/v1/contract").status == 401
        assert client.ask("GET", "/readyz").status == 200
        schema = client.ask("GET", "/openapi.json").json
        assert schema["paths"]["/v1/anchors"]["post"]["security"] == [{"key": []}]
        assert schema["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def test_keys_are_read_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# the phone\n{KEY}\n\n")
    unnamed = ApiKeys.read(file).name(f"Bearer {KEY}")
    assert unnamed is not None
    assert re.fullmatch("key-[0-9a-f]{6}", unnamed)
    assert ApiKeys.read(file).name("Bearer # the phone") is None
    assert (
        ApiKeys.read(None, {"CLOUD_ANCHOR_KEYS": f"{KEY}, tablet {KEY}2"}).name(f"bearer {KEY}2") == "tablet"
    )
    assert len(ApiKeys.read(None, {})) == 0
    file.write_text(f"{KEY}{KEY} my/key{KEY}\n")
    assert ApiKeys.read(file).name(f"Bearer my/key{KEY}") == KEY + KEY
    for wrong in (f"a/b {KEY}\n", "# nothing\n", "short\n"):
        file.write_text(wrong)
        with pytest.raises(RequestError):
            ApiKeys.read(file)
    with pytest.raises(RequestError):
        ApiKeys.read(tmp_path / "missing")


def test_every_request_has_an_id_and_a_line_in_the_log(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    with served(local(pipeline), keys=ApiKeys([f"phone {KEY}"])) as client, caplog.at_level("INFO"):
        caplog.clear()
        body, key = {"prompt": PROMPT, "steps": 4}, f"Bearer {KEY}"
        given = client.ask("POST", "/v1/anchors", body, X_Request_Id="trace-7.a", Authorization=key)
        events = client.ask("POST", "/v1/anchors/stream", body, X_Request_Id="two words", Authorization=key)
        refused = client.ask("POST", "/v1/anchors", body)
        lost = client.ask("BREW", "/secret-path", Authorization=key)
        client.ask("GET", "/healthz")
        lines = [each.getMessage() for each in caplog.records if each.name == "cloud_anchor.serve.requests"]
    ids = [reply.headers["x-request-id"] for reply in (given, events, refused, lost)]
    assert ids[0] == "trace-7.a"
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in ids[1:])
    expected = (
        ("trace-7.a", "POST", "/v1/anchors", 200, 4, len(given.body), "phone"),
        (ids[1], "POST", "/v1/anchors/stream", 200, 4, len(events.body), "phone"),
        (ids[2], "POST", "/v1/anchors", 401, 0, len(refused.body), "-"),
        (ids[3], "-", "other", 404, 0, len(lost.body), "-"),
    )
    assert len(lines) == len(expected)
    form = r"id={} method={} path={} status={} seconds=\d+\.\d{{3}} steps={} bytes={} key={}"
    for line, values in zip(lines, expected, strict=True):
        assert re.fullmatch(form.format(*values), line)


def test_a_service_knows_the_speed_of_a_full_batch_however_slow_it_is(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud_anchor.serve.batching.local.WARM_UP_SECONDS", 0.0)
    with served(local(pipeline)) as client:
        assert client.backend.engine._forecast.speed.seconds(LIMITS.batch) > 0


def test_a_service_without_an_edge_model_refuses_edge_aware(dream_folder: Path) -> None:
    pipeline = Pipeline.open(str(dream_folder))
    with served(local(pipeline)) as client:
        assert client.ask("GET", "/v1/contract").json["selections"] == ["paper", "confidence"]
        assert client.ask("GET", "/v1/contract").json["codecs"] == ["compact"]
        for fields in ({"select": "edge-aware"}, {"max_bytes": 64}, {"codec": "predictive"}):
            reply = client.anchors(prompt=PROMPT, **fields)
            assert (reply.status, reply.code) == (422, "invalid_request")
        schema = client.ask("GET", "/openapi.json").json["components"]["schemas"]["AnchorsRequest"]
        assert "max_bytes" not in schema["properties"]
        assert schema["properties"]["select"]["enum"] == ["paper", "confidence"]


def test_what_is_taken_back_is_sent_whole(tmp_path: Path) -> None:
    """A payload adds to the one before it only where nothing that was sent has changed."""
    pytest.importorskip("transformers.models.diffusion_gemma")
    folder = make_diffusion_gemma(tmp_path / "model", canvas=32, max_denoising_steps=16)
    pipeline = Pipeline.open(str(folder), device="cpu")
    shared = Shared(pipeline.form.contract, pipeline.form.ids("Hi"), pipeline.form.tokenizer)
    kinds = set()
    with served(local(pipeline, LIMITS, pipeline.plan())) as found:
        base = None
        sent: dict[int, int] = {}
        fractions = [step / 16 for step in range(1, 17)]
        for received in ServiceClient(found.url, timeout=60).stream(
            "Hi", fractions=fractions, select="paper"
        ):
            anchors = decode(received.data, replace(shared, base=base if received.delta else None))
            kept = sent.items() <= anchors.by_position.items()
            assert kept or not received.delta
            kinds.add(kept)
            base, sent = Base(received.data, anchors), dict(anchors.by_position)
    assert kinds == {True, False}
