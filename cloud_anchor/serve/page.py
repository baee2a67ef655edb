"""The page at `/`: its static files, the questions it offers, and the stream of a trace.

Responsible for these paths and their headers. Not responsible for traces (see `trace`) or for the page's own
code (see `web/`).

Everything comes from this address: no inline script or style, no address of others. The page's files need no
key; the stream does where the service has keys, in the header Authorization as everywhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import Body, FastAPI, Request, Response

from cloud_anchor.serve.errors import encode_json
from cloud_anchor.serve.http.accounts import Account, account_of
from cloud_anchor.serve.http.error_handlers import JSON
from cloud_anchor.serve.http.event_stream import encode_event, event_stream
from cloud_anchor.serve.http.schema import TraceBody
from cloud_anchor.serve.http.service import Service

if TYPE_CHECKING:
    from cloud_anchor.serve.trace import Tracer

WEB = Path(__file__).parent / "web"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.svg": ("page.svg", "image/svg+xml"),
}
"""Paths of the page's files, and the file and media type of each."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Page:
    """The page of a service. examples: questions that it offers."""

    tracer: Tracer
    examples: Sequence[str] = ()


def install_page(app: FastAPI, service: Service, page: Page) -> None:
    """Adds the page's paths to an application."""
    for path, (name, media_type) in FILES.items():
        app.add_api_route(path, _static(WEB / name, media_type), include_in_schema=False)

    @app.get("/v1/page", include_in_schema=False)
    async def facts() -> Response:
        """What the page shows before a question."""
        info = service.backend.info
        known = {"model": info.model, "steps": info.steps, "total_steps": info.total_steps}
        return Response(encode_json(known | {"examples": list(page.examples)}), media_type=JSON)

    @app.post("/v1/trace", include_in_schema=False)
    async def trace(request: Request, body: Annotated[TraceBody, Body()]) -> Response:
        """The events of one question; see `trace`."""
        account = account_of(request.scope)
        return await event_stream(request.receive, _events(service, page.tracer, body, account))


async def _events(
    service: Service, tracer: Tracer, body: TraceBody, account: Account
) -> AsyncGenerator[bytes]:
    asked = tracer.events(body.prompt, body.fraction, account.client)
    async with service.admitted(account, tracer.most_steps(body.fraction)), aclosing(asked) as events:
        async for event in events:
            if event.name == "payload":
                account.steps += event.data["step"]
            yield encode_event(*event)


def _static(file: Path, media_type: str) -> Callable[[], Awaitable[Response]]:
    data = file.read_bytes()

    async def static() -> Response:
        return Response(data, headers=HEADERS, media_type=media_type)

    return static
