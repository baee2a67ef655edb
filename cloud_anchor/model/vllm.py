"""The protocol of a vLLM server (0.33) for DiffusionGemma: the unfinished canvas of one answer.

Responsible for requests, for one pool of connections, for attempts and times, and for the server's errors in
this project's words. Not responsible for what is made of a canvas (see `served`).

A request runs `diffusion_max_steps` steps over one canvas. With `diffusion_read_only` it then returns the
most probable token of every position, with its log-probability at temperature 1, and ends.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    TimeoutError,
)

from cloud_anchor.errors import RequestError, ServerBusyError, ServerError, ServerTimeoutError
from edge_runtime.client.client import Client
from edge_runtime.client.response import chat_error
from edge_runtime.errors import UsageError

CONNECT_SECONDS = 5.0
ATTEMPTS = 3
BACKOFF_SECONDS = 0.25
"""Before the second attempt; doubled before the third."""

MAX_BODY_BYTES = 1 << 20
"""A canvas of 256 positions takes about 10 kB."""

BUSY = (429, 503)
"""Statuses of a request that was not begun."""

EXPECTED = {
    401: ("a key that it knows", "Give its key ($CLOUD_ANCHOR_BACKEND_KEY)."),
    403: ("a key that it knows", "Give its key ($CLOUD_ANCHOR_BACKEND_KEY)."),
    404: ("vLLM's path and the model", "Check address and model."),
}
"""What was expected where it answers with a status, and the remedy."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Canvas(NamedTuple):
    """Tokens of an unfinished answer, and the probability of each; shorter than asked for at the context's
    end.
    """

    ids: list[int]
    chances: list[float]


class ServedName(NamedTuple):
    """A model that the server has: the name to ask by, where it was loaded from, and its context."""

    id: str
    root: str | None
    context: int | None


def canvas_request(model: str, prompt: Sequence[int], steps: int, canvas: int) -> dict[str, Any]:
    """The body of a request for the canvas of a prompt (token ids) after so many steps.

    The sampling options are stated because a server otherwise takes those of its model's
    generation_config.json, of which it refuses some for a diffusion model.
    """
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": canvas,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "ignore_eos": True,
        "logprobs": 0,
        "return_token_ids": True,
        "vllm_xargs": {
            "diffusion_max_steps": steps,
            "diffusion_read_only": 1,
            "diffusion_canvas_length": canvas,
        },
    }


@dataclass
class VllmServer:
    """A server's address. All methods may be called from any thread.

    url:         http://host:port or https://..., with the path before /v1 where there is one.
    key:         sent as `Authorization: Bearer`.
    connections: most requests at once; further ones wait for a place.

    Only what was not begun is asked again: a connection that was never made, and statuses 429 and 503. A run
    that may have been charged, one that broke off or took too long, is not.

    Raises RequestError for an invalid address, and for what the server refuses; ServerError else.
    """

    url: str
    key: str | None = None
    connections: int = 8
    sleep: Callable[[float], None] = time.sleep
    _pool: urllib3.PoolManager = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            Client(self.url, self.key)
        except UsageError as error:
            raise RequestError(f"backend: {error}") from None
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        size = self.connections
        self._pool = urllib3.PoolManager(1, headers, maxsize=size, block=True, retries=False)

    def models(self, timeout: float = 10.0) -> list[ServedName]:
        """The models that it has."""
        found = self._ask("GET", "/v1/models", None, timeout).get("data")
        cards = [card for card in found if isinstance(card, dict)] if isinstance(found, list) else []
        named = [
            ServedName(card["id"], _of(card.get("root"), str), _of(card.get("max_model_len"), int))
            for card in cards
            if isinstance(card.get("id"), str)
        ]
        if not named:
            raise ServerError(f"{self.url}: expected vLLM's list of models, found none. Is it a vLLM server?")
        return named

    def canvas(
        self, model: str, prompt: Sequence[int], steps: int, canvas: int, timeout: float = 60.0
    ) -> Canvas:
        """The canvas of a prompt after so many steps; timeout: seconds in all."""
        body = json.dumps(canvas_request(model, prompt, steps, canvas)).encode("ascii")
        answer = self._ask("POST", "/v1/completions", body, timeout)
        try:
            (choice,) = answer["choices"]
            ids, chances = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            fine = 0 < len(ids) == len(chances) <= canvas and all(
                type(id_) is int and id_ >= 0 for id_ in ids
            )
            probabilities = [math.exp(min(0.0, float(each))) for each in chances] if fine else []
        except (KeyError, TypeError, ValueError):
            fine = False
        if not fine or not all(0 <= each <= 1 for each in probabilities):
            raise ServerError(
                f"{self.url}: expected token ids and their log-probabilities, of 1 to {canvas} positions, "
                "found another answer. vLLM 0.33 or later with DiffusionGemma gives them."
            )
        return Canvas(ids, probabilities)

    def _ask(self, method: str, path: str, body: bytes | None, timeout: float) -> Mapping[str, Any]:
        """The JSON object of an answer; asked again where nothing was begun and time is left."""
        end = time.monotonic() + timeout
        for attempt in range(ATTEMPTS):
            try:
                return self._attempt(method, path, body, end)
            except ServerBusyError as error:
                wait = BACKOFF_SECONDS * 2**attempt * random.uniform(0.5, 1.0)
                wait = max(wait, error.retry_after or 0.0)
                if attempt == ATTEMPTS - 1 or time.monotonic() + wait >= end:
                    raise
            self.sleep(wait)
        raise AssertionError("unreachable")

    def _attempt(self, method: str, path: str, body: bytes | None, end: float) -> Mapping[str, Any]:
        left = end - time.monotonic()
        late = f"{self.url}: expected an answer in time, found none"
        if left <= 0:
            raise ServerTimeoutError(f"{late}. Ask for fewer steps, or allow more time.")
        try:
            response = self._pool.request(
                method,
                self.url.rstrip("/") + path,
                body=body,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, left), read=left),
                redirect=False,
                preload_content=False,
            )
            try:
                data = _read(response, end)
            except BaseException:
                response.close()  # or the rest of it would be the next answer's beginning
                raise
        except (NewConnectionError, ConnectTimeoutError) as error:
            found = f"{self.url}: expected a server, found none there ({_short(error)}). Is it running?"
            raise ServerBusyError(found, away=True) from error
        except (ReadTimeoutError, TimeoutError) as error:
            raise ServerTimeoutError(f"{late}. Ask for fewer steps, or allow more time.") from error
        except (HTTPError, OSError) as error:
            remedy = "Its log says why; the run may have been made, so it is not asked again."
            raise ServerError(
                f"{self.url}: expected an answer, found a connection that broke ({_short(error)}). {remedy}"
            ) from error
        if response.status != 200:
            raise self._refusal(response.status, data, response.headers.get("Retry-After"))
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServerError(f"{self.url}: expected JSON of a vLLM server, found something else")
        return answer

    def _refusal(self, status: int, data: bytes, retry_after: str | None) -> RequestError | ServerError:
        """The error of a status: what the server says of it, without control characters."""
        said = _message(data)
        found = f"status {status}: {said}" if said else f"status {status}"
        if status in BUSY:
            seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
            busy = f"{self.url}: expected a server with a free place, found {found}. Try again later."
            return ServerBusyError(busy, retry_after=seconds)
        if status in (400, 413, 422):
            return RequestError(
                f"backend: expected a request that the server takes, found {found}. Use a shorter prompt, "
                "fewer steps or a smaller canvas."
            )
        expected, remedy = EXPECTED.get(status, ("an answer", "Its log says why."))
        return ServerError(f"{self.url}: expected {expected}, found {found}. {remedy}")


def _read(response: urllib3.BaseHTTPResponse, end: float) -> bytes:
    """A body of bounded size, however slowly it arrives."""
    parts, size = [], 0
    for part in response.stream(1 << 16):
        size += len(part)
        parts.append(part)
        if size > MAX_BODY_BYTES:
            raise HTTPError(f"more than {MAX_BODY_BYTES} bytes")
        if time.monotonic() >= end:
            raise TimeoutError
    return b"".join(parts)


def _message(data: bytes) -> str:
    """What an error's body says: vLLM has {"error": {"message": ...}} and, without a key, {"error": ...}."""
    try:
        return chat_error(json.loads(data)["error"])[0].strip().rstrip(".")
    except (ValueError, KeyError, TypeError):
        return ""


def _short(error: BaseException) -> str:
    return _CONTROL.sub(" ", str(error).rpartition(": ")[2])[:100] or type(error).__name__


def _of(value: object, kind: type) -> Any:
    """The value where it is of this kind and no truth value, else None."""
    return value if isinstance(value, kind) and not isinstance(value, bool) else None
