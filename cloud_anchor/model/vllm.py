"""The protocol of a vLLM server (0.33) for DiffusionGemma: the unfinished canvas of one answer.

Responsible for requests, and for the server's errors in this project's words. Not responsible for connections
and attempts (see `edge_runtime.client`) or for what is made of a canvas (see `served`).

A request runs `diffusion_max_steps` steps over one canvas. With `diffusion_read_only` it then returns the
most probable token of every position, with its log-probability at temperature 1, and ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cloud_anchor.errors import RequestError, ServerBusyError, ServerError
from edge_runtime.client.client import JSON, Client
from edge_runtime.client.response import chat_error, json_object
from edge_runtime.errors import CloudFailureError, UsageError

ATTEMPTS = 3

MAX_BODY_BYTES = 1 << 20
"""A canvas of 256 positions takes about 10 kB."""

REMEDIES = {
    "401": "Give its key ($CLOUD_ANCHOR_BACKEND_KEY).",
    "403": "Give its key ($CLOUD_ANCHOR_BACKEND_KEY).",
    "404": "Check address and model.",
}
"""By the status that it answers with."""


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


class VllmServer:
    """A server's address. All methods may be called from any thread.

    url:         http://host:port or https://..., with the path before /v1 where there is one.
    key:         sent as `Authorization: Bearer`.
    connections: most requests at once.

    Only what was not begun is asked again: a run that may have been charged, one that broke off or took too
    long, is not.

    Raises RequestError for an invalid address, and for what the server refuses; ServerError else.
    """

    def __init__(self, url: str, key: str | None = None, connections: int = 8) -> None:
        self.url, self.connections = url, connections
        try:
            self.client = Client(url, key, attempts=ATTEMPTS, stated=_stated, charged=True)
        except UsageError as error:
            raise RequestError(f"backend: {error}") from None

    def models(self) -> list[ServedName]:
        """The models that it has."""
        found = self.ask("/v1/models", None, 10.0).get("data")
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
        answer = self.ask("/v1/completions", canvas_request(model, prompt, steps, canvas), timeout)
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

    def ask(self, path: str, body: Mapping[str, Any] | None, timeout: float) -> Mapping[str, Any]:
        """The JSON object of an answer to a POST of `body`, or to a GET; timeout: seconds in all."""
        client = replace(self.client, timeout=max(0.001, min(timeout, 3600.0)))
        data = None if body is None else json.dumps(body).encode("ascii")
        try:
            with client.request(path, JSON, data) as response:
                return json_object(response.read_at_most(MAX_BODY_BYTES))
        except CloudFailureError as error:
            if error.code in ("400", "413", "422"):
                remedy = "Use a shorter prompt, fewer steps or a smaller canvas."
                raise RequestError(f"backend: {error}. {remedy}") from error
            if error.code in ("429", "503"):
                raise ServerBusyError(f"{error}. Try again later.", retry_after=error.retry_after) from error
            remedy = REMEDIES.get(
                error.code or "", "Its log says why; a run that was made is not asked again."
            )
            raise ServerError(f"{error}. {remedy}") from error


def _stated(error: object) -> tuple[str, str]:
    """vLLM has {"error": {"message": ..., "code": its status}} and, without a key, {"error": ...}."""
    text, _ = chat_error(error)
    return text.strip().rstrip("."), str(error.get("code")) if isinstance(error, dict) else "401"


def _of(value: object, kind: type) -> Any:
    """The value where it is of this kind and no truth value, else None."""
    return value if isinstance(value, kind) and not isinstance(value, bool) else None
