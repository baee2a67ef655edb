"""Client of OpenAI's chat protocol: any server of it, such as Ollama, llama.cpp or vLLM, as the cloud.

Responsible for the request and for the text of its stream, bounded in size and time. Not responsible for
addresses, retries and errors (see `client`) or for what becomes of the text (see `edge_runtime.finished`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge_runtime.client.client import EVENTS, Client, open_client
from edge_runtime.client.response import chat_error, json_object
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.text.chat import Prompt, as_messages

PREFIX = "openai:"
MAX_TEXT = 1 << 16
"""Most characters of an answer, reasoning included."""
OPENS, CLOSES = "<think>", "</think>"


@dataclass(frozen=True)
class ChatServer:
    """A model of a server. max_tokens: of an answer; None for the server's own limit."""

    client: Client
    model: str
    max_tokens: int | None = None

    @classmethod
    def open(
        cls, backend: str, model: str | None, key_file: Path | None = None, timeout: float = 60.0
    ) -> ChatServer:
        """The server at an address such as openai:http://localhost:11434/v1. Raises UsageError."""
        if not backend.startswith(PREFIX):
            raise UsageError(f"backend: expected {PREFIX}http://host:port/v1, found {backend!r:.100}")
        if not model:
            raise UsageError("backend: expected the server's name of a model beside it (--model), found none")
        client = open_client("backend", backend.removeprefix(PREFIX).rstrip("/"), key_file, timeout)
        return cls(replace(client, stated=chat_error), model)

    def answer(self, prompt: Prompt) -> Iterator[str]:
        """The pieces of an answer as they come, without a reasoning in front.

        Raises CloudUnavailableError where the server is not reached, breaks off or sends something else, and
        CloudRefusedError where it refuses.
        """
        messages = [message._asdict() for message in as_messages(prompt)]
        body: dict[str, Any] = {"model": self.model, "messages": messages, "stream": True, "temperature": 0}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        with self.client.request("/chat/completions", EVENTS, json.dumps(body).encode("ascii")) as response:
            yield from without_reasoning(self._pieces(response.events()))

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


def without_reasoning(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces behind <think>...</think>, where an answer begins so, and white space around it."""
    held, begun = "", False
    for piece in pieces:
        if begun:
            yield piece
            continue
        held += piece
        text = held.lstrip()
        if text.startswith(OPENS):
            _, found, text = text.partition(CLOSES)
            if not found:
                continue
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
