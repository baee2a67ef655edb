"""The client of a service: requests, limits, retries, untrusted responses, and answers made with them."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_runtime import fill as cli
from edge_runtime.client.client import Client, open_client
from edge_runtime.cloud import CloudQuestion
from edge_runtime.decode.forced import FillOptions, Token
from edge_runtime.decode.refine import Retract
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, UsageError
from edge_runtime.runtime import EdgeRuntime, FillRequest
from payload import AnchorSet, Base, Codec, Extras, Shared, encode

PROMPT = "How many loaves did she sell?"
Answer = bytes | Callable[[socket.socket], None] | None
"""Bytes to send back, a function that does it, or None to close without a word."""
Events = list[tuple[str, Any]]


class Scripted:
    """A server that gives its answers one after the other, the last one again and again."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        with sock:
            sock.settimeout(20)
            try:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += sock.recv(65536)
                head, _, body = data.partition(b"\r\n\r\n")
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        while len(body) < int(line.split(b":")[1]):
                            body += sock.recv(65536)
                self.requests.append(head + b"\r\n\r\n" + body)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if callable(answer):
                    answer(sock)
                elif answer is not None:
                    sock.sendall(answer)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()


Serve = Callable[..., Scripted]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[Scripted] = []

    def start(*answers: Answer) -> Scripted:
        made.append(Scripted(answers))
        return made[-1]

    yield start
    for each in made:
        each.close()


def http(status: str, body: bytes, kind: str = "application/octet-stream", *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


def refusal(status: str, code: str, *more: str) -> bytes:
    error = {"code": code, "expected": "a thing", "found": "another\x1b[2J", "remedy": "Do it."}
    return http(status, json.dumps({"error": error}).encode(), "application/json", *more)


def stream(*events: tuple[str, Any]) -> bytes:
    body = b"".join(
        b"event: %s\ndata: %s\n\n"
        % (name.encode(), data if isinstance(data, bytes) else json.dumps(data).encode())
        for name, data in events
    )
    return http("200 OK", body, "text/event-stream; charset=utf-8")


def payload_event(data: bytes, delta: bool = False) -> tuple[str, Any]:
    return "payload", {"payload": base64.b64encode(data).decode(), "delta": delta}


def cloud(server: Scripted, **options: Any) -> tuple[Client, list[float]]:
    """A client, and a list of the times it would have slept."""
    slept: list[float] = []
    return Client(server.url, **{"timeout": 10.0, "sleep": slept.append, **options}), slept


def test_a_payload_is_asked_for_and_fetched(serve: Serve) -> None:
    server = serve(http("200 OK", b"bytes"))
    asked, slept = cloud(server, key="secret")
    assert asked.fetch("Where?", fraction=0.1, contract=None) == b"bytes"
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/anchors HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret" in head
    assert json.loads(body) == {"prompt": "Where?", "fraction": 0.1}
    assert slept == []
    Client(server.url + "/some/where/").fetch("?")
    assert server.requests[1].startswith(b"POST /some/where/v1/anchors "), "a path before it is kept"


@pytest.mark.parametrize(
    "trouble", [refusal("503 Service Unavailable", "overloaded"), None, http("500 X", b"")]
)
def test_it_is_asked_again_with_growing_pauses(serve: Serve, trouble: Answer) -> None:
    server = serve(trouble, trouble, http("200 OK", b"bytes"))
    asked, slept = cloud(server)
    assert asked.fetch("?") == b"bytes"
    assert len(server.requests) == 3
    assert 0.125 <= slept[0] <= 0.25
    assert 0.25 <= slept[1] <= 0.5


def test_it_waits_as_long_as_it_is_told_to(serve: Serve) -> None:
    soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 4))
    server = serve(
        refusal("503 X", "overloaded", "Retry-After: 3"),
        refusal("429 X", "overloaded", f"Retry-After: {soon}"),
        refusal("503 X", "overloaded", "Retry-After: soon"),
        http("200 OK", b"bytes"),
    )
    asked, slept = cloud(server)
    assert asked.fetch("?") == b"bytes"
    assert 3 <= slept[0] <= 3.75
    assert 2 < slept[1] <= 5
    assert 0.5 <= slept[2] <= 1


@pytest.mark.parametrize(("more", "attempts"), [((), 4), (("Retry-After: 3600",), 1)])
def test_it_gives_up_after_a_few_attempts_or_where_the_next_would_come_too_late(
    serve: Serve, more: tuple[str, ...], attempts: int
) -> None:
    server = serve(refusal("503 X", "overloaded", *more))
    asked, slept = cloud(server)
    with pytest.raises(CloudUnavailableError):
        asked.fetch("?")
    assert (len(slept) + 1, len(server.requests)) == (attempts, attempts)


@pytest.mark.parametrize("status", ["400 X", "401 X", "404 X", "409 X", "413 X", "422 X", "301 X"])
def test_a_refusal_is_not_asked_again_and_its_words_are_harmless(serve: Serve, status: str) -> None:
    server = serve(refusal(status, "no"))
    with pytest.raises(CloudRefusedError) as error:
        cloud(server)[0].fetch("?")
    assert (error.value.code, str(error.value).isprintable()) == ("no", True)
    assert len(server.requests) == 1


def repeating(head: bytes, part: bytes, pause: float = 0.0) -> Answer:
    """An answer that begins so and goes on with the same part, a pause between, without an end."""

    def answer(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\n" + head)
        while True:
            sock.sendall(part)
            time.sleep(pause)

    return answer


BINARY = b"Content-Type: application/octet-stream\r\n"
EVENTS = b"Content-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    "slow",
    [
        repeating(b"X-Slow: ", b"x", 0.1),
        repeating(BINARY + b"Content-Length: 100\r\n\r\n", b"x", 0.1),
        lambda sock: time.sleep(2),
    ],
    ids=["head", "body", "silence"],
)
def test_time_is_bounded_however_slowly_it_answers(serve: Serve, slow: Answer) -> None:
    began = time.monotonic()
    with pytest.raises(CloudUnavailableError):
        cloud(serve(slow), timeout=0.4)[0].fetch("?")
    assert time.monotonic() - began < 1.5


PORTAL = b"<html>Log in to go on</html>"
PORTALS = [
    ("302 Found", PORTAL, "text/html"),
    ("307 Temporary Redirect", b"", "text/plain"),
    ("511 Network Authentication Required", PORTAL, "text/html"),
    ("401 Unauthorized", b"", "text/plain"),
    ("403 Forbidden", b'{"error": "log in"}', "application/json"),
    ("404 Not Found", b'{"code": 404, "expected": "?", "found": "?"}', "application/json"),
    ("404 Not Found", b'{"error": {"code": 404, "message": "log in"}}', "application/json"),
    ("200 OK", PORTAL, "text/html"),
    ("200 OK", b"{}", "application/json"),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("portal", PORTALS)
def test_a_captive_portal_is_no_service(serve: Serve, portal: tuple[str, bytes, str], streamed: bool) -> None:
    """It is asked once, and no redirect is followed."""
    elsewhere = serve(refusal("401 X", "unauthorized"))
    server = serve(http(*portal, f"Location: {elsewhere.url}/login"))
    with pytest.raises(CloudUnavailableError):
        list(cloud(server)[0].stream("?")) if streamed else cloud(server)[0].fetch("?")
    assert (len(server.requests), elsewhere.requests) == (1, [])


@pytest.mark.parametrize(
    "answer",
    [
        repeating(BINARY + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + bytes(65536) + b"\r\n"),
        b"HTTP/1.1 200 OK\r\n" + BINARY,
        b"HTTP/1.1 200 OK\r\n" + BINARY + b"\r\nno length",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        http("200 OK", b"abc").replace(b"Content-Length: 3", b"Content-Length: 9"),
    ],
)
def test_an_answer_of_another_form_is_none(serve: Serve, answer: Answer) -> None:
    with pytest.raises(CloudUnavailableError):
        cloud(serve(answer), attempts=1)[0].fetch("?")


@pytest.mark.parametrize(
    "answer",
    [
        repeating(EVENTS + b"data: ", b"A" * 65536),
        repeating(b"Transfer-Encoding: chunked\r\n" + EVENTS + b"f" * 17 + b"\r\n", b"data: {}\n\n"),
        repeating(EVENTS, b'event: payload\ndata: {"payload": "AAAA", "delta": false}\n\n'),
        stream(("payload", {"payload": "%%%", "delta": False})),
        stream(("payload", {"delta": False})),
        stream(("payload", [])),
        stream(("payload", b"{")),
        stream(("message", {})),
        stream(),
        stream(("error", {"code": "deadline_exceeded", "expected": "a", "found": "b"})),
    ],
)
def test_a_stream_of_another_form_is_none(serve: Serve, answer: Answer) -> None:
    with pytest.raises(CloudUnavailableError):
        list(cloud(serve(answer), attempts=1)[0].stream("?"))


def test_the_identity_is_checked_for_its_form(serve: Serve) -> None:
    good = json.dumps({"identity": "a" * 64}).encode()
    bad = json.dumps({"identity": "../../etc"}).encode()
    server = serve(http("200 OK", good, "application/json"), http("200 OK", bad, "application/json"))
    assert cloud(server)[0].identity() == "a" * 64
    with pytest.raises(CloudUnavailableError):
        cloud(server)[0].identity()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "ftp://host",
        "http://",
        "http://user@host",
        "http://host:x",
        "http://h\r\nX: y",
        "http://h?a=b",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        Client(url)


def test_a_key_in_the_clear_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_ANCHOR_KEY", "key")
    for fine in ("https://example.com", "http://127.0.0.1:8080", "http://localhost"):
        assert open_client("url", fine, None, 1.0).key == "key"
    with pytest.raises(UsageError):
        open_client("url", "http://example.com", None, 1.0)
    with pytest.raises(UsageError):
        Client("https://example.com", "a\r\nX: y")


# The library and the command line, with a bundle and payloads made for it.


@pytest.fixture(scope="module")
def edge(tiny_bundle: Path) -> EdgeRuntime:
    return EdgeRuntime.open(tiny_bundle, "fp32", threads=1)


@pytest.fixture(scope="module")
def sets(edge: EdgeRuntime) -> list[AnchorSet]:
    """Anchors after a few, some and more steps of a run; the last set takes something back."""
    contract = edge.bundle.contract
    return [
        AnchorSet((0, 5), (40, 60), 32, contract),
        AnchorSet((0, 5, 9), (40, 60, 70), 32, contract),
        AnchorSet((0, 6, 9), (41, 60, 70), 32, contract, 20),
    ]


@pytest.fixture(scope="module")
def events(edge: EdgeRuntime, sets: list[AnchorSet]) -> Events:
    shared = Shared(edge.bundle.contract, edge.prompt_ids(PROMPT))
    steps = [Extras(step=step, total_steps=64) for step in (2, 6, 12)]
    first = encode(sets[0], shared, extras=steps[0])
    second = encode(sets[1], replace(shared, base=Base(first, sets[0])), extras=steps[1])
    third = encode(sets[2], shared, extras=steps[2])
    return [payload_event(first), payload_event(second, True), payload_event(third)]


@pytest.fixture
def fill(tiny_bundle: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """fill(args...) -> (exit code, stdout, stderr)."""

    def run(*args: str) -> tuple[int, str, str]:
        code = cli.main([*args, "--edge", str(tiny_bundle), "--variant", "fp32", "--threads", "1"])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def text_of(edge: EdgeRuntime, anchors: AnchorSet | None = None, max_tokens: int | None = None) -> str:
    """What the device writes; without anchors alone."""
    request = FillRequest(edge.prompt_ids(PROMPT), anchors or edge.no_anchors)
    tokens = edge.fill(request, FillOptions(max_tokens=max_tokens))
    return edge.bundle.tokenizer.decode([token.id for token in tokens])


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_the_text_is_that_of_the_last_payload(
    serve: Serve, fill: Any, edge: EdgeRuntime, sets: list[AnchorSet], events: Events, way: str
) -> None:
    data = encode(sets[2], Shared(edge.bundle.contract, edge.prompt_ids(PROMPT)))
    server = serve(stream(*events, ("done", {})) if way == "--stream" else http("200 OK", data))
    code, out, _ = fill("--url", server.url, "--prompt", PROMPT, way, "--json", "--fraction", "0.1")
    answer = json.loads(out)
    assert (code, answer["text"]) == (0, text_of(edge, sets[2]))
    assert (answer["anchors"], answer["service"]["trouble"]) == (3, None)
    assert len(answer["service"]["payload_bytes"]) == (3 if way == "--stream" else 1)
    sent = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    extent = {"fractions": [0.1]} if way == "--stream" else {"fraction": 0.1}
    assert sent == {"prompt": PROMPT, "contract": edge.bundle.contract.identity, **extent}


def predictive(
    edge: EdgeRuntime, anchors: AnchorSet, base: Base | None = None, codec: Codec = Codec.PREDICTIVE
) -> bytes:
    predictor = edge.predictor(edge.prompt_ids(PROMPT))
    shared = Shared(edge.bundle.contract, predictor=predictor, base=base)
    return encode(anchors, shared, codec)


@pytest.mark.parametrize("codec", [Codec.PREDICTIVE, Codec.PORTABLE])
def test_predictive_payloads_are_decoded_with_the_device_model(
    serve: Serve, fill: Any, edge: EdgeRuntime, sets: list[AnchorSet], codec: Codec
) -> None:
    first = predictive(edge, sets[0], None, codec)
    second = predictive(edge, sets[1], Base(first, sets[0]), codec)
    server = serve(stream(payload_event(first), payload_event(second, True), ("done", {})))
    code, out, _ = fill("--url", server.url, "--prompt", PROMPT, "--codec", codec.label, "--stream")
    assert (code, out) == (0, text_of(edge, sets[1]) + "\n")
    assert f'"codec": "{codec.label}"'.encode() in server.requests[0]
    assert len(server.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("changed", [1, -1])
def test_a_predictive_payload_of_another_model_is_replaced_by_a_compact_one(
    serve: Serve, edge: EdgeRuntime, sets: list[AnchorSet], streamed: bool, changed: int
) -> None:
    other = bytearray(predictive(edge, sets[0]))
    other[changed] ^= 1  # the fingerprint's tag, or the body: found before decoding, and at its end
    good = encode(sets[1], Shared(edge.bundle.contract, edge.prompt_ids(PROMPT)))
    answers = [
        stream(payload_event(data), ("done", {})) if streamed else http("200 OK", data)
        for data in (bytes(other), good)
    ]
    server = serve(*answers)
    client = Client(server.url, fields={"codec": "predictive"})
    answer = CloudQuestion(client, edge, PROMPT, stream=streamed).answer()
    assert answered(edge, answer) == text_of(edge, sets[1])
    assert answer.service
    assert (answer.service.payload_bytes, bool(answer.service.fell_back)) == ([len(good)], True)
    assert b'"codec": "predictive"' in server.requests[0]
    assert b'"codec": "compact"' in server.requests[1]


def answered(edge: EdgeRuntime, answer: Iterable[Token | Retract]) -> str:
    """The text of an answer, without what it took back."""
    tokens: list[Token] = []
    for item in answer:
        if isinstance(item, Retract):
            del tokens[item.position :]
        else:
            tokens.append(item)
    return edge.bundle.tokenizer.decode([token.id for token in tokens])


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_tells_what_the_service_sent(
    serve: Serve, edge: EdgeRuntime, sets: list[AnchorSet], events: Events, streamed: bool
) -> None:
    data = encode(sets[2], Shared(edge.bundle.contract, edge.prompt_ids(PROMPT)))
    server = serve(stream(*events, ("done", {})) if streamed else http("200 OK", data))
    request = CloudQuestion(Client(server.url), edge, PROMPT, stream=streamed)
    answer = request.answer()
    assert answer.revisable is streamed
    assert answered(edge, answer) == text_of(edge, sets[2])
    assert (answer.prompt_ids, answer.anchors) == (edge.prompt_ids(PROMPT), sets[2])
    assert answer.stats.passes > 0
    assert answer.service == request.report
    assert len(request.report.payload_bytes) == (3 if streamed else 1)
    assert request.report.failure is None
    assert request.report.sent == len(server.requests[0].partition(b"\r\n\r\n")[2])


def test_a_stream_that_breaks_leaves_the_answer_of_what_it_brought(
    serve: Serve, fill: Any, edge: EdgeRuntime, sets: list[AnchorSet], events: Events
) -> None:
    server = serve(stream(*events[:2]))
    code, out, _ = fill("--url", server.url, "--prompt", PROMPT, "--stream", "--json")
    answer = json.loads(out)
    assert (code, answer["text"]) == (0, text_of(edge, sets[1]))
    assert answer["service"]["trouble"]


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_without_a_network_the_device_answers_alone_and_says_so(
    fill: Any, edge: EdgeRuntime, way: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    asked = ("--url", url, "--prompt", PROMPT, "--max-tokens", "12", "--timeout", "1", way)
    code, out, err = fill(*asked)
    assert (code, out) == (7, f"This device alone: {text_of(edge, max_tokens=12)}\n")
    assert err.startswith(f"fill: {url}: ")
    assert re.findall("^service +(.*)$", err, re.MULTILINE) == ["no payload"]
    code, out, _ = fill(*asked, "--json")
    answer = json.loads(out)
    assert (code, answer["alone"], answer["not_sure"]) == (7, True, None)
    assert fill(*asked, "--no-fallback")[0] == 5


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_a_refusal_and_a_payload_that_is_none_end_it(serve: Serve, fill: Any, way: str) -> None:
    none = stream(payload_event(b"\x00" * 20)) if way == "--stream" else http("200 OK", b"\x00" * 20)
    for answer, code in ((refusal("401 X", "unauthorized"), 5), (none, 3)):
        assert fill("--url", serve(answer).url, "--prompt", PROMPT, way)[:2] == (code, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "http://localhost:1"],
        ["--url", "localhost", "--prompt", "x"],
        ["--url", "http://localhost:1", "--prompt", "x", "--fraction", "2"],
        ["--url", "http://localhost:1", "--prompt", "x", "--timeout", "0"],
        ["--url", "http://localhost:1", "--prompt", "x", "--key-file", "/nonexistent"],
    ],
)
def test_wrong_usage(fill: Any, arguments: list[str]) -> None:
    code, _, err = fill(*arguments)
    assert (code, err.count("\n")) == (2, 1)


def test_the_key_comes_from_a_file_or_the_environment(
    serve: Serve, fill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(refusal("401 X", "unauthorized"))
    (tmp_path / "key").write_text("from-a-file\n")
    fill("--url", server.url, "--prompt", PROMPT, "--key-file", str(tmp_path / "key"))
    monkeypatch.setenv("CLOUD_ANCHOR_KEY", "from-the-environment")
    fill("--url", server.url, "--prompt", PROMPT)
    assert b"Bearer from-a-file\r\n" in server.requests[0]
    assert b"Bearer from-the-environment\r\n" in server.requests[1]


def test_the_compact_payload_in_place_of_a_predictive_one_has_the_time_that_is_left(
    edge: EdgeRuntime, sets: list[AnchorSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bytearray(predictive(edge, sets[0]))
    other[1] ^= 1
    good = encode(sets[1], Shared(edge.bundle.contract, edge.prompt_ids(PROMPT)))
    asked: list[tuple[str, float]] = []

    def fetch(client: Client, prompt: str, **fields: Any) -> bytes:
        asked.append((fields["codec"], client.timeout))
        time.sleep(0.2)
        return bytes(other) if fields["codec"] == "predictive" else good

    monkeypatch.setattr(Client, "fetch", fetch)
    client = Client("http://localhost:1", timeout=20, fields={"codec": "predictive"})
    assert CloudQuestion(client, edge, PROMPT, stream=False).answer().anchors == sets[1]
    (first, whole), (second, left) = asked
    assert (first, second, whole) == ("predictive", "compact", 20)
    assert left <= 19.8
    asked.clear()
    request = CloudQuestion(replace(client, timeout=0.15), edge, PROMPT, stream=False)
    request.receive()
    assert [codec for codec, _ in asked] == ["predictive"]
    assert request.report.failure
