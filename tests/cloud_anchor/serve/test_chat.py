"""OpenAI's chat protocol on the service: the whole run's text, its drafts, and what is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.select import Selection
from cloud_anchor.serve.batching.backend import ServiceInfo
from edge_runtime.text.tokenizer import Tokenizer
from tests.cloud_anchor.serve.service_runner import PLAN, Client, Reply, local, served

CHAT = "/v1/chat/completions"
PROMPT = "Where does the river end?"


@pytest.fixture(scope="module")
def client(pipeline: Pipeline) -> Iterator[Client]:
    with served(local(pipeline)) as made:
        yield made


@pytest.fixture(scope="module")
def run(pipeline: Pipeline) -> Denoised:
    """The whole run of PROMPT alone."""
    config, _ = pipeline.resolve(replace(PLAN, steps=PLAN.total_steps), Selection("confidence"))
    return denoise(pipeline.model, [pipeline.model_form.ids(PROMPT)], config)[0]


@pytest.fixture(scope="module")
def tokenizer(pipeline: Pipeline) -> Tokenizer:
    return pipeline.model_form.tokenizer


def ask(client: Client, **more: Any) -> Reply:
    return client.ask("POST", CHAT, {"messages": [{"role": "user", "content": PROMPT}], **more})


def chunks(client: Client, **more: Any) -> list[Any]:
    reply = ask(client, stream=True, **more)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *events, done = reply.body.decode().strip().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def text_of(found: list[Any]) -> str:
    return "".join(each["choices"][0]["delta"].get("content", "") for each in found)


def test_the_answer_is_that_of_the_run_and_the_same_streamed(
    client: Client, run: Denoised, tokenizer: Tokenizer
) -> None:
    whole = ask(client, model="any").json
    (choice,) = whole["choices"]
    assert choice["message"] == {"role": "assistant", "content": tokenizer.decode(run.answer)}
    assert choice["finish_reason"] == ("length" if run.first_end == run.canvas else "stop")
    assert whole["usage"]["completion_tokens"] == len(run.answer)
    assert "draft" not in whole
    streamed = chunks(client)
    assert streamed[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert text_of(streamed) == tokenizer.decode(run.answer)
    assert streamed[-1]["usage"] == whole["usage"]


def test_drafts_say_what_is_committed_since_when_how_surely_and_what_is_provisional(
    client: Client, run: Denoised, tokenizer: Tokenizer
) -> None:
    streamed = chunks(client, drafts=True)
    drafts = [each["draft"] for each in streamed[1:-1]]
    assert [draft["step"] for draft in drafts] == list(range(1, run.steps + 1))
    for before, after in itertools.pairwise(drafts):
        for old, new in zip(before["tokens"], after["tokens"], strict=False):
            assert new == old or not old[2]  # committed: it stays
    for at, draft in enumerate(drafts, 2):
        assert draft["text"].startswith(text_of(streamed[:at]).rstrip("\ufffd"))
        assert all(0 <= sure <= 1 and when <= draft["step"] for _, sure, when in draft["tokens"])
    assert drafts[-1]["tokens"] == [
        [tokenizer.token_bytes(id_).decode("utf-8", "replace"), round(sure, 3), when]
        for id_, sure, when in zip(run.answer, run.certainty, run.when, strict=False)
    ]
    assert ask(client, drafts=True).json["draft"] == drafts[-1]


def test_an_answer_ends_at_its_limit_or_at_a_stop(
    client: Client, run: Denoised, tokenizer: Tokenizer
) -> None:
    short = ask(client, max_tokens=3).json
    assert short["choices"][0]["message"]["content"] == tokenizer.decode(run.answer[:3])
    assert (short["choices"][0]["finish_reason"], short["usage"]["completion_tokens"]) == ("length", 3)
    text = tokenizer.decode(run.answer)
    stopped = ask(client, stop=text[4:7]).json["choices"][0]
    assert stopped["message"]["content"] == text[: text.index(text[4:7])]
    assert stopped["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"temperature": 0.7}, "temperature: 0, the likeliest tokens"),
        ({"temperature": "hot"}, "temperature: another type"),
        ({"drafts": 1}, "drafts: true or false"),
        ({"n": 2}, "n: 1"),
        ({"max_completion_tokens": 0}, "max_completion_tokens: at least 1"),
        ({"tools": [{"type": "function"}]}, "tools: none, which this endpoint does not offer"),
        ({"messages": []}, "messages: a list of at least one message"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages: the last of role user"),
    ],
)
def test_a_wrong_request_is_one_line_with_the_field(client: Client, more: Any, expected: str) -> None:
    reply = ask(client, **more)
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert reply.json["error"]["expected"] == expected


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_run(client: Client, stream: bool) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": PROMPT}], "stream": stream}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    for _ in range(6):
        with client.connect() as sock:
            sock.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    client.wait_until_idle()
    assert client.backend.engine.figures()["expected_steps"] == 0
    assert ask(client).status == 200


def test_the_clients_library(client: Client) -> None:
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    library = openai.OpenAI(base_url=f"{client.url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in library.models.list()] == ["test"]
    asked = {"model": "test", "messages": [{"role": "user", "content": PROMPT}]}
    answer = library.chat.completions.create(**asked)
    stream = library.chat.completions.create(**asked, stream=True, extra_body={"drafts": True})
    streamed = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in streamed) == answer.choices[0].message.content
    assert streamed[1].draft["step"] == 1


def test_a_service_whose_models_run_elsewhere_says_so() -> None:
    class Elsewhere:
        info = ServiceInfo("far", "0" * 64, {}, 8, 8, 8, 8, ("paper",), ("compact",))

        async def open(self) -> None: ...
        async def close(self) -> None: ...
        def state(self) -> None: ...

    with served(Elsewhere()) as client:  # type: ignore[arg-type]
        assert [each["id"] for each in client.ask("GET", "/v1/models").json["data"]] == ["far"]
        reply = ask(client)
        assert (reply.status, reply.code) == (404, "no_chat")
