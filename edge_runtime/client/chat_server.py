"""Client of OpenAI's chat protocol: any server of it, such as Ollama, llama.cpp or vLLM, as the cloud.

Responsible for the request and for the text of its stream, bounded in size and time, and for the options of a
form by the log-probabilities of an answer's first token. Not responsible for addresses, retries and errors
(see `client`) or for what becomes of the text (see `edge_runtime.finished`).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from common import files
from edge_runtime.client.client import EVENTS, JSON, Client, open_client
from edge_runtime.client.response import chat_error, json_object
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.form import Form, Slot
from edge_runtime.text.chat import Prompt, as_messages

log = logging.getLogger(__name__)

PREFIX = "openai:"
MAX_TEXT = 1 << 16
"""Most characters of an answer, reasoning included."""
TOP = 20
"""Likeliest first tokens that are asked for: the protocol's most."""
OPENS, CLOSES = "<think>", "</think>"


@dataclass(frozen=True)
class ChatServer:
    """A model of a server.

    max_tokens: of an answer; None for the server's own limit. reasoning: keep what it thinks before it
    answers. response_format: of its requests, such as {"type": "json_object"}; None for any text.
    """

    client: Client
    model: str
    max_tokens: int | None = None
    reasoning: bool = False
    response_format: Mapping[str, Any] | None = None

    @classmethod
    def open(
        cls,
        backend: str,
        model: str | None,
        key_file: Path | None = None,
        timeout: float = 60.0,
        key: str | None = None,
    ) -> ChatServer:
        """The server at an address such as openai:http://localhost:11434/v1. Raises UsageError.

        key: where no file has it; None: the environment's. Behind a ? the address may say more, as those of
        links do: key=FILE, timeout=SECONDS, reasoning=keep, and format=FILE with a response_format as JSON.
        """
        if not backend.startswith(PREFIX):
            raise UsageError(f"backend: expected {PREFIX}http://host:port/v1, found {backend!r:.100}")
        if not model:
            raise UsageError("backend: expected the server's name of a model beside it (--model), found none")
        url, _, query = backend.removeprefix(PREFIX).partition("?")
        said = dict(parse_qsl(query, keep_blank_values=True))
        try:
            timeout = float(said.pop("timeout", timeout))
            reasoning = ("", "keep").index(said.pop("reasoning", "")) > 0
        except ValueError as error:
            raise UsageError(f"backend: expected timeout=SECONDS or reasoning=keep, found {error}") from None
        file, key_file = said.pop("format", None), Path(said.pop("key")) if "key" in said else key_file
        if said:
            raise UsageError(f"backend: expected key, timeout, reasoning or format, found {min(said)!r:.40}")
        form = files.read_json(Path(file), UsageError) if file else None
        client = open_client("backend", url.rstrip("/"), key_file, timeout, key)
        return cls(replace(client, stated=chat_error), model, reasoning=reasoning, response_format=form)

    def answer(self, prompt: Prompt) -> Iterator[str]:
        """The pieces of an answer as they come, by default without a reasoning in front.

        Raises CloudUnavailableError where the server is not reached, breaks off or sends something else, and
        CloudRefusedError where it refuses.
        """
        messages = [message._asdict() for message in as_messages(prompt)]
        body: dict[str, Any] = {"model": self.model, "messages": messages, "stream": True, "temperature": 0}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.response_format is not None:
            body["response_format"] = self.response_format
        with self.client.request("/chat/completions", EVENTS, json.dumps(body).encode("ascii")) as response:
            pieces = self._pieces(response.events())
            yield from pieces if self.reasoning else without_reasoning(pieces)

    def decide(self, form: Form, text: str, asked: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """The probabilities of a form's options, a request for each question, as of `decisions.Decider`.

        Raises as `answer` does, CloudUnavailableError also where the server tells no probabilities.
        """
        begin = f"{form.says or 'Answer the question about the text.'}\n\nText: {text}\n\n"
        return {at: shares(form.slots[at], self._first_tokens(begin, form.slots[at])) for at in asked}

    def _first_tokens(self, begin: str, slot: Slot) -> list[tuple[str, float]]:
        """The likeliest first tokens of an answer to one question, with their log-probabilities."""
        options = ", ".join(_labels(slot))
        asks = f"{begin}{slot.title}{slot.says and f': {slot.says}'}? Answer with one of: {options}."
        body = {"model": self.model, "messages": [{"role": "user", "content": asks}], "temperature": 0}
        data = json.dumps(body | {"max_tokens": 1, "logprobs": True, "top_logprobs": TOP}).encode("ascii")
        with self.client.request("/chat/completions", JSON, data) as response:
            found = json_object(response.read_at_most(MAX_TEXT))
        try:
            listed = found["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            return [(str(each["token"]), min(0.0, float(each["logprob"]))) for each in listed]
        except (KeyError, IndexError, TypeError, ValueError):
            raise CloudUnavailableError(
                f"{self.client}: expected log-probabilities of an answer's first token (top_logprobs), found "
                f"{found!r:.80}; llama-cpp-python's server gives them with --logits_all true"
            ) from None

    def _pieces(self, events: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        size, done = 0, False
        for _, data in events:
            if data == b"[DONE]":
                return
            found = json_object(data)
            if "error" in found:
                raise CloudUnavailableError(f"{self.client}: {chat_error(found['error'])[0]}")
            for choice in (found.get("choices") or [])[:1]:
                piece = (choice.get("delta") or {}).get("content") or ""
                if not isinstance(piece, str):
                    raise ValueError("expected text in a piece of an answer")
                size += len(piece)
                if size > MAX_TEXT:
                    raise CloudUnavailableError(
                        f"{self.client}: expected an answer of at most {MAX_TEXT} characters, found more"
                    )
                done = done or choice.get("finish_reason") is not None
                if piece:
                    yield piece
        if not done:
            raise CloudUnavailableError(f"{self.client}: the answer ended before it was done")


def _labels(slot: Slot) -> Sequence[str]:
    """A slot's options as a person would say them."""
    yes_or_no = all(isinstance(value, bool) for value in slot.values)
    return ["yes" if value else "no" for value in slot.values] if yes_or_no else slot.labels


def shares(slot: Slot, tokens: Sequence[tuple[str, float]]) -> list[float]:
    """The probabilities of a slot's options from those of first tokens.

    A token counts for the option that it begins; where it begins several, in equal parts. An option of no
    listed token has half of the least one's probability.
    """
    options = [label.casefold() for label in _labels(slot)]
    least = math.exp(min((each for _, each in tokens), default=0.0)) / 2
    found = [0.0] * len(options)
    for token, logarithm in tokens:
        start = token.strip(' "').casefold()
        begun = [at for at, option in enumerate(options) if start and option.startswith(start)]
        for at in begun:
            found[at] += math.exp(logarithm) / len(begun)
    found = [max(each, least, 1e-9) for each in found]
    return [each / sum(found) for each in found]


def without_reasoning(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces behind <think>...</think>, where an answer begins so, and white space; it is logged."""
    held, begun = "", False
    for piece in pieces:
        if begun:
            yield piece
            continue
        held += piece
        text = held.lstrip()
        if text.startswith(OPENS):
            thought, found, text = text.partition(CLOSES)
            if not found:
                continue
            if len(thought) > len(OPENS):
                log.warning("a reasoning of %d characters was left out", len(thought) - len(OPENS))
            text = text.lstrip()
            if not text:
                held = OPENS + CLOSES
                continue
        elif OPENS.startswith(text):
            continue
        begun = True
        yield text
    if not begun and not held.lstrip().startswith(OPENS):
        yield held.lstrip()
