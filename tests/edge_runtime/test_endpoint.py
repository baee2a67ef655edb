"""The endpoint: what a client of OpenAI's protocol gets, and what it is refused."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the endpoint needs starlette and uvicorn")

from edge_runtime.decode.forced import Token
from edge_runtime.endpoint.__main__ import main
from edge_runtime.endpoint.app import MAX_WAITING, Endpoint, application
from edge_runtime.endpoint.chat_request import MAX_MESSAGES, ChatRequest, SettledText
from edge_runtime.endpoint.server import LINES, FewLines, Server
from edge_runtime.engine.base import common_prefix
from edge_runtime.engine.shared import MAX_BYTES
from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from edge_runtime.text.chat import Message
from tests.edge_runtime.test_modes import FakeCloud
from tests.edge_runtime.test_session import BUNDLE, SHORT, HashEngine, runtime

ROOT = Path(__file__).resolve().parents[2]
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
QUESTION = {"role": "user", "content": "What is the capital of Japan?"}


class Served:
    """An endpoint on a free port, in a thread; `engine` counts what it runs."""

    def __init__(self, **options: Any) -> None:
        edge, self.engine = runtime()
        if "mode" in options:
            options["cloud"] = FakeCloud()
        self.endpoint = Endpoint(edge, max_tokens=12, **options)
        self.server = Server(application(self.endpoint), 8, 5.0, port=0)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(10)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), timeout=10)

    def post(self, body: Any, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", data, sent)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                text = response.read().decode()
                if "event-stream" in response.headers["Content-Type"]:
                    return response.status, [line[6:] for line in text.splitlines() if line]
                return response.status, json.loads(text)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served() as found:
        yield found


def alone(*messages: dict[str, str]) -> str:
    """The text of a fresh session."""
    edge, _ = runtime()
    session = EdgeSession(edge, messages=[Message(**each) for each in messages[:-1]])
    return BUNDLE.tokenizer.decode([t.id for t in session.ask(messages[-1]["content"], SHORT)])  # type: ignore[union-attr]


def joined(events: list[str]) -> str:
    """The text of a stream's events, of which the last one says that it is done."""
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    return "".join(delta.get("content", "") for delta in deltas)


def test_an_answer_and_the_same_streamed(served: Served) -> None:
    status, whole = served.post({"messages": [QUESTION], "model": "any"})
    assert status == 200
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": alone(QUESTION)}
    assert whole["edge"]["source"] == "on_device"
    assert whole["usage"]["total_tokens"] > whole["usage"]["completion_tokens"] > 0
    _, events = served.post({"messages": [QUESTION], "stream": True})
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert joined(events) == alone(QUESTION)
    assert chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    assert chunks[-1]["edge"]["passes"] > 0


def test_a_conversation_runs_what_is_new(served: Served) -> None:
    said = alone(QUESTION)
    served.post({"messages": [QUESTION]})
    more = [QUESTION, {"role": "assistant", "content": said}, {"role": "user", "content": "And of Chile?"}]
    _, found = served.post({"messages": more})
    assert found["choices"][0]["message"]["content"] == alone(*more)
    assert found["edge"]["cached_tokens"] > len(BUNDLE.form.ids(QUESTION["content"])) - 12


def test_conversations_in_turn_run_what_is_new_of_each() -> None:
    """Their common beginning, a system message, is read once."""
    system = {"role": "system", "content": "Answer in one short sentence, and name one place at most."}

    def turns(waiting: int) -> list[tuple[int, int, list[int]]]:
        """Tokens run, tokens new and the answer's ids in each turn; two conversations take turns."""
        endpoint = Endpoint(EdgeRuntime.open(BUNDLE.path, "fp32", threads=1, waiting=waiting), max_tokens=12)
        talks = [
            [system, {"role": "user", "content": f"What is the capital of {of}?"}]
            for of in ("Japan", "Chile")
        ]
        read: list[list[int]] = [[], []]
        found = []
        for turn in range(3):
            for number, talk in enumerate(talks):
                answer = endpoint.answer(ChatRequest.of({"messages": talk}))
                ids = [token.id for token in answer if isinstance(token, Token)]
                prompt = list(answer.prompt_ids)
                new = len(prompt) - common_prefix(prompt, read[number]) + len(ids)
                found.append((answer.stats.computed, new, ids))
                read[number] = prompt + ids
                said = {"role": "assistant", "content": BUNDLE.tokenizer.decode(ids)}
                talk += [said, {"role": "user", "content": f"And in {turn}?"}]
        return found

    kept, one = turns(MAX_BYTES), turns(0)
    assert [ids for *_, ids in kept] == [ids for *_, ids in one]
    # The token that ended an answer is run with the next turn.
    assert all(count <= new + 1 for count, new, _ in kept)
    assert kept[1][0] < kept[0][0] - 10  # the second conversation's system message was the first's
    assert all(count > new + 10 for count, new, _ in one[2:])


@pytest.mark.parametrize("mode", ["prefer_on_device", "prefer_in_cloud"])
def test_with_a_service_only_settled_text_is_sent(mode: str) -> None:
    with Served(mode=mode) as with_cloud:
        _, whole = with_cloud.post({"messages": [QUESTION]})
        _, events = with_cloud.post({"messages": [QUESTION], "stream": True})
    assert joined(events) == whole["choices"][0]["message"]["content"]
    assert whole["edge"]["source"] == ("mixed" if mode == "prefer_in_cloud" else whole["edge"]["source"])


def test_the_clients_library(served: Served) -> None:
    """Unchanged, as an application has it."""
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["testbed-qwen"]
    answer = client.chat.completions.create(model="testbed-qwen", messages=[QUESTION])
    assert answer.choices[0].message.content == alone(QUESTION)
    stream = client.chat.completions.create(model="testbed-qwen", messages=[QUESTION], stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == alone(QUESTION)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="x", messages=[QUESTION], tools=[{"type": "function"}])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[1]", 400),
        ({"messages": []}, 400),
        ({"messages": [{"role": "king", "content": "x"}]}, 400),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400),
        ({"messages": [QUESTION], "n": 2}, 400),
        ({"messages": [QUESTION], "max_tokens": 0}, 400),
        ({"messages": [QUESTION], "temperature": "hot"}, 400),
        ({"messages": [QUESTION], "temperature": -1}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400),
        ({"messages": [{"role": "user", "content": "long " * 2000}]}, 400),
        ({"messages": [QUESTION] * (MAX_MESSAGES + 1)}, 400),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400),
        (b" " * (2 << 20), 413),
    ],
)
def test_a_wrong_request_is_one_error(served: Served, body: Any, status: int) -> None:
    found, error = served.post(body)
    assert found == status
    assert error["error"]["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("seed", 10**400),
        ("temperature", 10**400),
        ("temperature", float("inf")),
        ("top_p", 10**400),
        ("top_p", 2),
        ("max_tokens", 10**400),
        ("n", 10**400),
        ("stop", ["a"] * 100),
        ("stop", [1]),
    ],
)
def test_a_field_out_of_range_is_named(served: Served, name: str, value: Any) -> None:
    status, found = served.post({"messages": [QUESTION], name: value})
    assert (status, found["error"]["param"]) == (400, name)


def test_strangers(served: Served) -> None:
    assert served.post({"messages": [QUESTION]}, Content_Type="text/plain")[0] == 415
    assert served.post({"messages": [QUESTION]}, Host="evil.example")[0] == 403
    assert served.post({"messages": [QUESTION]}, Origin="http://evil.example")[0] == 403
    for host in ("[::1]", "[::1]:8081", "localhost"):
        assert served.post({"messages": [QUESTION]}, Host=host)[0] == 200
    with Served(key="secret") as locked:
        assert locked.post({"messages": [QUESTION]})[0] == 401
        assert locked.post({"messages": [QUESTION]}, Authorization="Bearer secret")[0] == 200


def test_another_address_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGE_ENDPOINT_KEY", raising=False)
    assert main(["--host", "0.0.0.0"]) == 2
    assert main(["--cache", "-1"]) == 2


def test_a_port_that_is_taken_is_said_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(EdgeRuntime, "model", property(lambda self: pytest.fail("loaded")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--port", str(taken.getsockname()[1])]) == 2
    assert main(["--port", "99999"]) == 2
    assert capsys.readouterr().err.count("endpoint: --port: ") == 2


def test_stop_texts_and_parts(served: Served) -> None:
    text = alone(QUESTION)
    stop = text[5:8]
    _, found = served.post({"messages": [QUESTION], "stop": [stop]})
    assert found["choices"][0]["message"]["content"] == text[: text.index(stop)]
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION["content"]}]}]
    assert served.post({"messages": parts})[1]["choices"][0]["message"]["content"] == text
    asked = ChatRequest.of({"messages": [{"role": "developer", "content": "s"}, QUESTION]})
    assert [message.role for message in asked.messages] == ["system", "user"]
    with pytest.raises(UsageError):
        ChatRequest.of({"messages": "x"})
    settled = SettledText(BUNDLE.tokenizer and runtime()[0].text_stream(), ["zzz"])
    ids = BUNDLE.tokenizer.encode(text)
    assert "".join([*map(settled.push, ids), settled.flush()]) == text


class Slow:
    """Holds the model's passes; `entered` where one runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.go_on, self.passes = threading.Event(), threading.Event(), 0
        plain = HashEngine._run

        def run(engine: HashEngine, ids: Any, rows: Any) -> Any:
            self.passes += 1
            self.entered.set()
            assert self.go_on.wait(20)
            return plain(engine, ids, rows)

        monkeypatch.setattr(HashEngine, "_run", run)


@pytest.mark.parametrize("stream", [False, True])
def test_answers_whose_clients_have_left_delay_nobody(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(QUESTION)
    with Served() as served:
        slow = Slow(monkeypatch)
        body = json.dumps({"messages": [QUESTION], "stream": stream}).encode()
        for _ in range(MAX_WAITING):
            with served.connect() as sock:
                sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                assert slow.entered.wait(10)
        end = time.monotonic() + 10
        while served.server.server_state.tasks and time.monotonic() < end:
            time.sleep(0.01)
        assert not served.server.server_state.tasks  # though the pass of the first still runs
        before = slow.passes
        slow.go_on.set()
        status, found = served.post({"messages": [QUESTION]})
        assert (status, found["choices"][0]["message"]["content"]) == (200, expected)
        assert slow.passes <= before + found["edge"]["passes"] + 1


def test_a_client_that_does_not_read_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_runtime.endpoint.protocol.READ_SECONDS", 0.5)
    more = {"more": "x" * (16 << 20)}  # than the buffers of a connection take
    monkeypatch.setattr("edge_runtime.endpoint.app._usage", lambda answer: more)
    with Served() as served, served.connect() as sock:
        body = json.dumps({"messages": [QUESTION], "stream": True}).encode()
        sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert sock.recv(100)
        assert served.post({"messages": [QUESTION]})[0] == 200
        assert served.post({"messages": [QUESTION], "stream": True})[1][-1] == "[DONE]"  # one that reads


def test_a_full_queue_says_when_it_will_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as served:
        served.endpoint._seconds = 4.0
        monkeypatch.setattr(served.endpoint, "_waiting", MAX_WAITING)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(
                urllib.request.Request(
                    f"{served.url}/v1/chat/completions",
                    json.dumps({"messages": [QUESTION]}).encode(),
                    {"Content-Type": "application/json"},
                )
            )
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, str(4 * (MAX_WAITING + 1)))


def test_idle_connections_keep_nobody_out(served: Served) -> None:
    """The oldest end; a request that runs does not."""
    idle = [served.connect() for _ in range(40)]
    try:
        assert served.post({"messages": [QUESTION]})[0] == 200
        assert idle[0].recv(1024).startswith(b"HTTP/1.1 503 ")
    finally:
        for each in idle:
            each.close()


@pytest.mark.parametrize(("start", "drip"), [(b"", b""), (b"POST /v1/", b"x"), ("HEAD", b" ")])
def test_what_arrives_slowly_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch, start: Any, drip: bytes
) -> None:
    monkeypatch.setattr("edge_runtime.endpoint.protocol.HEAD_SECONDS", 0.5)
    monkeypatch.setattr("edge_runtime.endpoint.app.BODY_SECONDS", 0.5)
    with served.connect() as sock:
        sock.sendall(HEAD + b"Content-Length: 100\r\n\r\n" if start == "HEAD" else start)
        sock.settimeout(0.1)
        answer, end = b"", time.monotonic() + 10
        while not answer and time.monotonic() < end:
            try:
                answer = sock.recv(1024)
            except TimeoutError:
                sock.sendall(drip)
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("method", [b"HEAD", b"POST"])
def test_a_broken_body_ends_the_connection_alone(
    served: Served, method: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal has no text to HEAD, and there is none behind an answer; nothing fails."""
    head = HEAD.replace(b"POST", method).replace(b"json", b"xml") + b"Transfer-Encoding: chunked\r\n\r\n"
    with served.connect() as sock:
        sock.settimeout(10)
        if method == b"POST":
            sock.sendall(head)
            head = b""
            assert sock.recv(1024).startswith(b"HTTP/1.1 415 ")
        sock.sendall(head + b"no size\r\n")
        while sock.recv(1024):
            pass
    assert served.post({"messages": [QUESTION]})[0] == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_flood_of_log_lines_is_cut() -> None:
    few = FewLines()
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", ("line",), None)
    assert 0 < sum(few.filter(record) for _ in range(20 * LINES)) <= 2 * LINES
    few._second -= 1
    assert few.filter(record)
    assert "left out" in record.getMessage()


def test_sigterm_ends_an_endpoint_whose_model_hangs() -> None:
    script = (
        "import time; from edge_runtime.endpoint import app, server\n"
        "from tests.edge_runtime.test_session import runtime\n"
        "server.GRACE = 1.0; edge, _ = runtime()\n"
        "edge.model.engine._run = lambda *_: (print('runs', flush=True), time.sleep(60))\n"
        "server.log_few_lines('%(message)s', 'INFO')\n"
        "server.Server(app.application(app.Endpoint(edge)), 8, 1.0, port=0).run()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        assert process.stdout is not None
        lines = iter(process.stderr.readline, "")
        port = next(int(found[1]) for line in lines if (found := re.search(r"127.0.0.1:(\d+)", line)))
        body = json.dumps({"messages": [QUESTION]}).encode()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert process.stdout.readline() == "runs\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 1
