"""The endpoint: what a client of OpenAI's protocol gets, and what it is refused."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the endpoint needs starlette and uvicorn")
import uvicorn

from edge_runtime.decode.forced import Token
from edge_runtime.endpoint.__main__ import main
from edge_runtime.endpoint.app import Endpoint, application
from edge_runtime.endpoint.chat_request import ChatRequest, SettledText
from edge_runtime.engine.base import common_prefix
from edge_runtime.engine.shared import MAX_BYTES
from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from edge_runtime.text.chat import Message
from tests.edge_runtime.test_modes import FakeCloud
from tests.edge_runtime.test_session import BUNDLE, SHORT, runtime

QUESTION = {"role": "user", "content": "What is the capital of Japan?"}


class Served:
    """An endpoint on a free port, in a thread; `engine` counts what it runs."""

    def __init__(self, **options: Any) -> None:
        edge, self.engine = runtime()
        if "mode" in options:
            options["cloud"] = FakeCloud()
        self.endpoint = Endpoint(edge, max_tokens=12, **options)
        config = uvicorn.Config(application(self.endpoint), port=0, log_level="error", ws="none")
        self.server = uvicorn.Server(config)
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
        (b" " * (2 << 20), 413),
    ],
)
def test_a_wrong_request_is_one_error(served: Served, body: Any, status: int) -> None:
    found, error = served.post(body)
    assert found == status
    assert error["error"]["message"]


def test_strangers(served: Served) -> None:
    assert served.post({"messages": [QUESTION]}, Content_Type="text/plain")[0] == 415
    assert served.post({"messages": [QUESTION]}, Host="evil.example")[0] == 403
    with Served(key="secret") as locked:
        assert locked.post({"messages": [QUESTION]})[0] == 401
        assert locked.post({"messages": [QUESTION]}, Authorization="Bearer secret")[0] == 200


def test_another_address_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGE_ENDPOINT_KEY", raising=False)
    assert main(["--host", "0.0.0.0"]) == 2
    assert main(["--cache", "-1"]) == 2


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
