"""OpenAI's chat protocol: the text of a whole run, without a device's part, for clients that want that.

Responsible for the text of a run as it settles, and for its drafts. Not responsible for what a request may
say (see `edge_runtime.endpoint.chat_request`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import Body, FastAPI, Request, Response

from cloud_anchor.selection.select import CONFIDENCE
from cloud_anchor.serve.batching.backend import AnchorRequest, Backend, require_ready
from cloud_anchor.serve.batching.jobs import CanvasStep
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.errors import ServiceError, encode_json, refused
from cloud_anchor.serve.http.accounts import Account, account_of
from cloud_anchor.serve.http.error_handlers import JSON
from cloud_anchor.serve.http.openapi import COMMON_ERRORS, PAYLOAD_ERRORS, error_responses, schema_of
from cloud_anchor.serve.http.payload_routes import within_limits
from cloud_anchor.serve.http.schema import event_schema
from cloud_anchor.serve.trace import draft_of
from edge_runtime.endpoint.chat_request import ChatRequest, SettledText
from edge_runtime.endpoint.completion import chunk_events, chunks_of, model_list, whole
from edge_runtime.endpoint.presence import EVENTS, event_stream, while_present
from edge_runtime.errors import UsageError
from edge_runtime.text.tokenizer import TextStream

EVENT_DATA = "A ChatAnswer in JSON, an ErrorAnswer where the run ends, or `[DONE]`."


def install_chat(app: FastAPI, backend: Backend) -> None:
    """Adds /v1/chat/completions and /v1/models to an application."""
    listed = {"description": "The one model.", "content": {JSON: schema_of("ChatModels")}}

    @app.get(
        "/v1/models",
        response_class=Response,
        responses={200: listed, **error_responses(401, *COMMON_ERRORS)},
    )
    async def models() -> Response:
        """The service's model, for clients of OpenAI's protocol."""
        return Response(encode_json(model_list(backend.info.model, "this service")), media_type=JSON)

    @app.post(
        "/v1/chat/completions",
        response_class=Response,
        openapi_extra={"requestBody": {"content": {JSON: schema_of("ChatRequest")}}},
        responses={
            200: {
                "description": "The answer; with `stream` its chunks as data of events, then `[DONE]`.",
                "content": {JSON: schema_of("ChatAnswer"), EVENTS: {"schema": event_schema(EVENT_DATA)}},
            },
            **error_responses(404, *PAYLOAD_ERRORS),
        },
    )
    async def completions(request: Request, body: dict[str, Any] = Body()) -> Response:  # noqa: B008
        """The whole run's text, by OpenAI's chat protocol: nothing is left for a device."""
        require_ready(backend)
        if not isinstance(backend, LocalBackend):
            remedy = "Ask a service that runs its model in its own process."
            raise ServiceError(404, "no_chat", "a service that answers chats", "one without", remedy)
        try:
            asked = ChatRequest.of(body)
            if asked.sampling is not None:
                found = body["temperature"]
                raise UsageError(f"temperature: expected 0, the likeliest tokens, found {found!r:.60}")
            if not isinstance(body.get("drafts"), bool | None):
                raise UsageError(f"drafts: expected true or false, found {body['drafts']!r:.60}")
        except UsageError as error:
            raise replace(refused(error), status=400) from None
        account = account_of(request.scope)
        job = AnchorRequest(asked.messages, (1.0,), select=CONFIDENCE)
        job = within_limits(job, backend.info, account.client)
        chunks = _chunks(backend, asked, job, account, drafts=bool(body.get("drafts")))
        if asked.stream:
            events = chunk_events(chunks, lambda e: e.body() if isinstance(e, ServiceError) else None)
            return await event_stream(request.receive, events)
        return Response(encode_json(await while_present(request.receive, whole(chunks))), media_type=JSON)


async def _chunks(
    backend: LocalBackend, asked: ChatRequest, job: AnchorRequest, account: Account, *, drafts: bool
) -> AsyncGenerator[dict[str, Any]]:
    """The chunks of an answer: the role at the first step; texts; the end. Closing them ends the run."""
    tokenizer, chunk = backend.pipeline.model_form.tokenizer, chunks_of(backend.info.model)
    text, sent, begun = SettledText(TextStream(tokenizer), asked.stop), 0, False
    draft: dict[str, Any] = {}
    async with aclosing(backend.watch(job)) as events:
        async for step in events:
            assert isinstance(step, CanvasStep)  # the payload comes after the last one
            run, account.steps = step.run, step.run.steps
            ids = (run.predicted_answer if step.last else run.settled)[: asked.max_tokens]
            piece = "".join(map(text.push, ids[sent:]))
            sent = len(ids)
            full = sent == asked.max_tokens
            ended = step.last or full or text.stopped
            piece += text.flush() if ended else ""
            if drafts:
                draft["draft"] = draft_of(run, tokenizer)
            if not begun:
                yield chunk({"role": "assistant"})
                begun = True
            if piece or draft:
                yield chunk({"content": piece}, **draft)
            if ended:
                break
    # A canvas without an end was too short for its answer.
    cut = not text.stopped and (full or run.first_end == run.canvas)
    prompt = len(run.prompt_ids)
    usage = {"prompt_tokens": prompt, "completion_tokens": sent, "total_tokens": prompt + sent}
    yield chunk({}, "length" if cut else "stop", usage=usage, **draft)
