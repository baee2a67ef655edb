"""Any server of OpenAI's chat protocol as the cloud: its text, and everything that goes wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.client.chat_server import MAX_TEXT, ChatServer, shares, without_reasoning
from edge_runtime.client.client import Client
from edge_runtime.client.response import chat_error
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, UsageError
from edge_runtime.form import Form
from edge_runtime.text.chat import Message
from tests.edge_runtime.client.chat_servers import (
    Behaviour,
    chat_server,
    event,
    fails,
    first_tokens,
    says,
    stalls,
)

TEXT = ["Boil ", "the water", " for a minute. ", "\U0001f600"]


def answer(server: ChatServer, prompt: str | Sequence[Message] = "How?") -> str:
    return "".join(server.answer(prompt))


def test_the_pieces_of_a_stream_are_the_answer_and_the_messages_pass_as_they_are(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    talk = [
        Message("system", "Be short."),
        Message("user", "Hi"),
        Message("assistant", "Hi."),
        Message("user", "How?"),
    ]
    with chat_server(says(TEXT)) as (address, asked):
        assert list(ChatServer.open(address + "/", "qwen", key).answer(talk)) == TEXT
    assert asked[0]["path"] == "/v1/chat/completions"
    assert asked[0]["key"] == "Bearer secret"
    assert asked[0]["messages"] == [message._asdict() for message in talk]
    assert (asked[0]["model"], asked[0]["stream"]) == ("qwen", True)


@pytest.mark.parametrize(
    "behaviour",
    [
        says(TEXT, end=b"", finish=None),
        says(TEXT, end=event(error={"message": "out of memory"}), finish=None),
        says(TEXT, end=b"data: {half", finish=None),
        says(TEXT, end=b"data: " + b"x" * (1 << 21) + b"\n\n", finish=None),
        says(["x" * 4096] * (MAX_TEXT // 4096 + 2)),
        says(["x"] * 100, pause=0.1),
        fails(200, b"<html>Log in</html>", "text/html"),
        fails(200, json.dumps({"choices": []}).encode()),
        fails(307, b"", Location="http://127.0.0.1:1/v1/chat/completions"),
        fails(500, b'{"error": {"message": "broken"}}'),
        fails(502, b"<html>", "text/html"),
        stalls,
    ],
)
def test_what_breaks_is_unavailable_within_the_time(behaviour: Behaviour) -> None:
    with chat_server(behaviour) as (address, _):
        server = ChatServer.open(address, "qwen", timeout=1.5)
        server = replace(server, client=replace(server.client, attempts=2, sleep=lambda _: None))
        began = time.monotonic()
        with pytest.raises(CloudUnavailableError) as caught:
            answer(server)
    assert time.monotonic() - began < 4
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error", [{"message": "model 'qwen' not found", "code": 404}, "model 'qwen' not found"]
)
def test_a_refusal_of_the_server_is_told_in_its_words(error: object) -> None:
    refuses = fails(404, json.dumps({"error": error}).encode())
    with chat_server(refuses) as (address, asked), pytest.raises(CloudRefusedError, match="not found"):
        answer(ChatServer.open(address, "qwen"))
    assert len(asked) == 1


def test_a_busy_server_is_asked_again_after_the_time_that_it_states() -> None:
    busy = fails(429, b'{"error": {"message": "slow down"}}', Retry_After="3")
    waits: list[float] = []
    with chat_server(busy, says(TEXT)) as (address, asked):
        server = ChatServer.open(address, "qwen")
        server = replace(server, client=replace(server.client, sleep=waits.append))
        assert answer(server) == "".join(TEXT)
    assert len(asked) == 2
    assert waits[0] >= 3


@pytest.mark.parametrize(
    "backend", ["http://localhost:1/v1", "openai:", "openai:ftp://x", "openai:http://u@h/v1"]
)
def test_an_address_that_is_none_is_refused(backend: str) -> None:
    with pytest.raises(UsageError):
        ChatServer.open(backend, "qwen")


def test_a_model_has_to_be_named_and_a_key_stays_off_the_open_network(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    for arguments in ((None, None), ("qwen", key)):
        with pytest.raises(UsageError):
            ChatServer.open("openai:http://192.0.2.1/v1", *arguments)


@given(
    st.text("ab <think/>\n", max_size=20),
    st.text("ab \n", max_size=12),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_reasoning_is_left_out_wherever_the_pieces_are_cut(
    text: str, reasoning: str, cuts: list[int]
) -> None:
    text = text.strip()
    if text.startswith("<"):
        text = f"a{text}"
    whole = f"\n<think>{reasoning}</think>\n\n{text}"
    for said in (whole, text):
        places = sorted({0, len(said), *(cut for cut in cuts if cut < len(said))})
        pieces = [said[a:b] for a, b in pairwise(places)]
        assert "".join(without_reasoning(pieces)) == text
    assert "".join(without_reasoning(["<think>", "never ends"])) == ""


def test_the_client_is_that_of_the_service() -> None:
    found = ChatServer.open("openai:http://localhost:1/v1", "m").client
    assert found == Client("http://localhost:1/v1", timeout=60, stated=chat_error)


FORM = Form.of({"properties": {"spam": {"type": "boolean"}, "to": {"enum": ["sales", "salt", "nobody"]}}})


def test_options_are_read_from_the_first_token_of_an_answer() -> None:
    with chat_server(
        first_tokens(YES=-0.1, maybe=-9.0, n=-2.4), first_tokens(Sal=-1.0, sales=-1.5)
    ) as server:
        found = ChatServer.open(server[0], "m").decide(FORM, "Buy now", [0, 1])
    for each in server[1]:
        assert (each["max_tokens"], each["top_logprobs"], each["logprobs"]) == (1, 20, True)
    assert "Buy now" in server[1][1]["messages"][0]["content"]
    assert "sales, salt, nobody" in server[1][1]["messages"][0]["content"]
    assert found[0] == pytest.approx([0.909, 0.091], abs=1e-3)
    part, least = np.exp(-1.0) / 2, np.exp(-1.5) / 2  # of a token that begins two options; of none
    told = np.array([part + np.exp(-1.5), part, least])
    assert found[1] == pytest.approx(told / told.sum())


@pytest.mark.parametrize(
    "behaviour",
    [
        fails(200, b'{"choices": [{"message": {"content": "true"}, "logprobs": null}]}'),
        fails(200, b'{"choices": []}'),
        fails(200, b'{"choices": [{"logprobs": {"content": [{"top_logprobs": [{"token": "a"}]}]}}]}'),
        fails(200, b"<html>"),
        fails(500, b"{}"),
    ],
)
def test_a_server_without_probabilities_is_one_error(behaviour: Behaviour) -> None:
    with chat_server(behaviour) as (address, _), pytest.raises(CloudUnavailableError):
        ChatServer.open(address, "m", timeout=2).decide(FORM, "Buy now", [0])


@given(st.lists(st.tuples(st.text(max_size=8), st.floats(-60, 0)), max_size=20))
def test_shares_are_a_distribution_whatever_the_tokens_are(tokens: list[tuple[str, float]]) -> None:
    for slot in FORM.slots:
        found = shares(slot, tokens)
        assert sum(found) == pytest.approx(1)
        assert min(found) > 0
