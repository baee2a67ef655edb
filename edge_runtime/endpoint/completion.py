"""Responses of OpenAI's chat protocol: chunks of an answer, the answer as a whole, and events.

Not responsible for where the texts come from (see `app`, and the service's `chat_routes`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from edge_runtime.endpoint.presence import encode_event


def chunks_of(model: str) -> Callable[..., dict[str, Any]]:
    """Makes the chunks of one answer by this model: of a delta, how it finished, and further fields."""
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def chunk(delta: dict[str, str], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**head, "object": "chat.completion.chunk", "choices": [choice], **more}

    return chunk


async def whole(chunks: AsyncGenerator[dict[str, Any]]) -> dict[str, Any]:
    """The response of an answer that is not streamed: the texts of all chunks, the rest of the last one."""
    text, last = "", {}
    async for last in chunks:
        text += last["choices"][0]["delta"].get("content", "")
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": None}
    choice["finish_reason"] = last["choices"][0]["finish_reason"]
    return {**last, "object": "chat.completion", "choices": [choice]}


async def chunk_events(
    chunks: AsyncGenerator[dict[str, Any]], body: Callable[[Exception], Any]
) -> AsyncGenerator[bytes]:
    """Events of the chunks. An error after the first is one too where `body` says so, else it is raised."""
    begun = False
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                yield encode_event(None, chunk)
                begun = True
        except Exception as error:
            if not begun or (said := body(error)) is None:
                raise
            yield encode_event(None, said)
    yield b"data: [DONE]\n\n"


def model_list(name: str, owner: str) -> dict[str, Any]:
    """The response of /v1/models."""
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": owner}]}
