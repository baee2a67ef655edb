"""The ASGI application: requests, responses and their limits.

    GET  /v1/models
    POST /v1/chat/completions   streamed or not; a response has the further object `edge`: source, doubt, cost

A conversation that continues runs only what is new, also where others were answered in between. Answers are
decoded one after the other. Without a key only requests to this machine are taken, and JSON alone, which a
page of another origin cannot send unasked. A stream of this protocol cannot take text back: in mode
prefer_on_device, whose text may be refined, an answer is held back until it is settled, or for a delay that
is set: after it nothing more is taken from the cloud, and the text goes on as it is written.

Not responsible for answers (see `edge_runtime.session`).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from math import ceil
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from common.errors import UserError
from edge_runtime.client.question import ServiceReport
from edge_runtime.cloud import Cloud, device_doubt
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.endings import Stop
from edge_runtime.decode.forced import FillOptions, Token
from edge_runtime.decode.refine import Retract
from edge_runtime.decode.streams import aiter_tokens
from edge_runtime.endpoint.chat_request import ChatRequest, SettledText
from edge_runtime.endpoint.completion import chunk_events, chunks_of, model_list, whole
from edge_runtime.endpoint.presence import ClientLeftError, event_stream, foreign_header, while_present
from edge_runtime.errors import CloudFailureError, UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 10.0
"""In which all of a body has to arrive."""

MAX_WAITING = 8
"""Requests that wait for the one being answered."""

Turn = Answer[Token | Retract]


class BusyError(UserError):
    """Too many requests wait. seconds: until they are answered, by the last answers."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Endpoint:
    """The application's state: one runtime, answered one request at a time."""

    def __init__(
        self,
        edge: EdgeRuntime,
        cloud: Cloud | None = None,
        *,
        mode: str | None = None,
        key: str | None = None,
        max_tokens: int = 512,
        delay: float | None = None,
    ) -> None:
        self.edge, self.cloud, self.mode, self.key = edge, cloud, mode, key
        self.max_tokens, self.delay = max_tokens, delay
        self.name = edge.bundle.path.name
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._seconds = 1.0  # of an answer, mostly of the last ones

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[list[Turn]]:
        """Holds the engine for the answer that is put into the list; raises BusyError where too many wait.

        An answer that was left in the middle of a pass holds it until that pass ends, so that those behind it
        wait here, where they can leave without a pass of their own.
        """
        if self._waiting >= MAX_WAITING:
            seconds = self._seconds * (self._waiting + 1)
            raise BusyError(f"expected at most {MAX_WAITING} waiting requests, found as many", seconds)
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        began, held = time.monotonic(), list[Turn]()
        try:
            yield held
        finally:
            self._seconds += (time.monotonic() - began - self._seconds) / 2
            self._release_after(held[0] if held else None)

    def _release_after(self, answer: Turn | None) -> None:
        """Lets the next one in, once the answer has ended."""
        loop, released = asyncio.get_running_loop(), False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._turn.release()

        if answer is not None:
            keep = answer.at_end

            def ended() -> None:
                if keep is not None:
                    keep()
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(release)

            answer.at_end = ended
        if answer is None or answer.ended:
            release()

    def answer(self, asked: ChatRequest) -> Turn:
        """The answer to a request; raises what `EdgeSession.ask` does."""
        *before, question = asked.messages
        session = EdgeSession(self.edge, messages=before)
        limit = min(asked.max_tokens or self.max_tokens, self.max_tokens)
        options = FillOptions(max_tokens=limit, sampling=asked.sampling)
        # Sampled answers cannot be refined, and need no doubt of a cloud that is not asked.
        private = asked.sampling is not None
        return session.ask(
            question.content, options, cloud=self.cloud, mode=self.mode, private=private, delay=self.delay
        )


async def _pieces(endpoint: Endpoint, asked: ChatRequest, answer: Turn) -> AsyncGenerator[str]:
    """Texts of an answer, each once it is settled; closes the answer when it is left."""
    text = SettledText(endpoint.edge.text_stream(), asked.stop)
    async with aclosing(aiter_tokens(answer)) as items:
        sent = 0
        async for _ in items:
            if answer.revisable and not (answer.service and answer.service.settled):
                continue  # it may be taken back
            for token in answer.tokens[sent:]:
                if piece := text.push(token.id):
                    yield piece
            sent = len(answer.tokens)
            if text.stopped:
                return
    for token in answer.tokens[sent:]:
        if piece := text.push(token.id):
            yield piece
    if piece := text.flush():
        yield piece


def _report(answer: Turn) -> dict[str, Any]:
    """The object `edge` of a finished answer."""
    service = answer.service or ServiceReport()
    return {
        "source": answer.source,
        "doubt": answer.doubt,
        "not_sure": answer.not_sure,
        "alone": answer.alone,
        "device_doubt": device_doubt(answer.tokens),
        "doubt_before": service.doubt_before,
        "payload_bytes": sum(service.payload_bytes),
        "sent_bytes": service.sent,
        "failure": service.failure,
        "passes": answer.stats.passes,
        "cached_tokens": answer.stats.reused,
    }


def _usage(answer: Turn) -> dict[str, int]:
    prompt, written = len(answer.prompt_ids), len(answer.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def _finish(answer: Turn) -> str:
    return "length" if answer.stats.stop is Stop.LIMIT else "stop"


def _failure(error: Exception) -> Any:
    """The event of an answer that fails in its middle."""
    known = isinstance(error, UserError)
    return {"error": {"message": str(error), "type": "server_error"}} if known else None


def application(endpoint: Endpoint) -> Starlette:
    """The ASGI application."""

    def failed(
        status: int, message: str, kind: str = "invalid_request_error", wait: float | None = None
    ) -> Response:
        headers = {} if wait is None else {"Retry-After": str(max(1, ceil(wait)))}
        field = re.match(r"(\w+): expected", message)
        body = {"error": {"message": message, "type": kind, "param": field and field[1], "code": None}}
        return JSONResponse(body, status, headers)

    def refused(request: Request) -> Response | None:
        given = request.headers.get("authorization", "")
        if endpoint.key is not None:
            if hmac.compare_digest(given.encode(), f"Bearer {endpoint.key}".encode()):
                return None
            return failed(401, "expected this endpoint's key in Authorization, found none or another")
        if (found := foreign_header(request.headers)) is None:
            return None
        return failed(403, f"expected a request to this machine's address, from no other page, found {found}")

    async def models(request: Request) -> Response:
        return refused(request) or JSONResponse(model_list(endpoint.name, "this device"))

    async def completions(request: Request) -> Response:
        if (response := refused(request)) is not None:
            return response
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return failed(415, "content-type: expected application/json, found another")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        return failed(413, f"body: expected at most {MAX_BODY_BYTES} bytes, found more")
        except TimeoutError:
            return failed(408, f"body: expected all within {BODY_SECONDS:g} s, found {len(body)} bytes")
        except ClientDisconnect:
            return Response(status_code=499)
        try:
            asked = ChatRequest.of(json.loads(body))
        except (UsageError, ValueError, RecursionError) as error:
            return failed(400, str(error))
        chunks = _chunks(endpoint, asked)
        try:
            if asked.stream:
                return await event_stream(request.receive, chunk_events(chunks, _failure))
            return JSONResponse(await while_present(request.receive, whole(chunks)))
        except ClientLeftError:
            return Response(status_code=499)
        except BusyError as error:
            return failed(429, str(error), "rate_limit_error", error.seconds)
        except CloudFailureError as error:
            return failed(502, str(error), "server_error")
        except UsageError as error:
            return failed(400, str(error))
        except UserError as error:
            return failed(500, str(error), "server_error")

    return Starlette(
        routes=[Route("/v1/models", models), Route("/v1/chat/completions", completions, methods=["POST"])]
    )


async def _chunks(endpoint: Endpoint, asked: ChatRequest) -> AsyncGenerator[dict[str, Any]]:
    """The chunks of an answer: the role, once its first token is there; texts; the end with its figures."""
    chunk = chunks_of(endpoint.name)
    async with endpoint.turn() as held:
        answer = await asyncio.to_thread(endpoint.answer, asked)
        held.append(answer)
        async with aclosing(_pieces(endpoint, asked, answer)) as pieces:
            first = await anext(pieces, "")
            yield chunk({"role": "assistant"})
            yield chunk({"content": first})
            async for piece in pieces:
                yield chunk({"content": piece})
        yield chunk({}, _finish(answer), usage=_usage(answer), edge=_report(answer))
