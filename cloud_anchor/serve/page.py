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
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Body, FastAPI, Request, Response

from cloud_anchor.serve.batching.backend import Backend, require_ready
from cloud_anchor.serve.errors import ServiceError, encode_json
from cloud_anchor.serve.http.accounts import Account, account_of
from cloud_anchor.serve.http.error_handlers import JSON
from cloud_anchor.serve.http.openapi import PAYLOAD_ERRORS, error_responses
from cloud_anchor.serve.http.schema import TraceBody, event_schema
from cloud_anchor.shipped import names_a_subject
from edge_runtime.endpoint.presence import EVENTS, encode_event, event_stream

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

DEVICE_FILES = {
    "js/device.js": "text/javascript; charset=utf-8",
    "js/edge.worker.js": "text/javascript; charset=utf-8",
    "js/ort.wasm.bundle.min.mjs": "text/javascript; charset=utf-8",
    "js/ort-wasm-simd-threaded.wasm": "application/wasm",
    "model.bin": "application/octet-stream",
    "sw.js": "text/javascript; charset=utf-8",
}
"""Files of the folder that `make web-page` builds, and the media type of each; see `device_path`."""


def device_path(name: str) -> str:
    """Where a file of that folder is served: a service worker serves pages below its own place only."""
    return "/sw.js" if name == "sw.js" else f"/device/{name}"


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

ISOLATED = {
    "Content-Security-Policy": HEADERS["Content-Security-Policy"].replace(
        "script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'"
    ),
    "Cross-Origin-Embedder-Policy": "require-corp",
}
"""Headers where the model runs in the page: WebAssembly, a worker, and threads."""


MAX_EXACT_BYTES = 64 << 20
"""Of the float32 variant, for a browser to fetch it rather than the bundle's default one."""


@dataclass(frozen=True)
class Page:
    """The page of a service.

    examples: questions that it offers.
    device:   the folder that `make web-page` builds: the page writes the device's part in the browser, with
              the bundle that the service gives. None: it is written here.
    """

    tracer: Tracer
    examples: Sequence[str] = ()
    device: Path | None = None

    @property
    def variant(self) -> str | None:
        """The bundle's variant that the browser runs; None where it runs none.

        float32 where it is small: WebAssembly rounds quantised activations in its own way.
        """
        bundle = self.tracer.edge.bundle
        exact = bundle.manifest.variants.get("fp32")
        small = exact is not None and exact.size <= MAX_EXACT_BYTES
        return None if self.device is None else "fp32" if small else bundle.manifest.default_variant


def install_page(app: FastAPI, backend: Backend, page: Page) -> None:
    """Adds the page's paths to an application."""
    headers = HEADERS if page.device is None else HEADERS | ISOLATED
    served = {path: (WEB / name, media_type) for path, (name, media_type) in FILES.items()}
    if page.device is not None:
        served |= {device_path(name): (page.device / name, kind) for name, kind in DEVICE_FILES.items()}
    for path, (file, media_type) in served.items():
        app.add_api_route(path, _static(file, media_type, headers), include_in_schema=False)

    @app.get("/v1/page", include_in_schema=False)
    async def facts() -> Response:
        """What the page shows before a question."""
        info = backend.info
        known = {"model": info.model, "steps": info.steps, "total_steps": info.total_steps}
        manifest = page.tracer.edge.bundle.manifest
        known |= {"knows": manifest.knows, "not_sure_from": manifest.not_sure_from}
        known |= {"examples": list(page.examples), "device": page.variant}
        return Response(encode_json(known), media_type=JSON)

    says, names = "In JSON; of `step` a CanvasDraft.", "plan step payload sent token reasons end error done"
    content = {EVENTS: {"schema": event_schema(says, *names.split())}}
    described: dict[int | str, Any] = {200: {"description": "Events of both sides.", "content": content}}
    described |= error_responses(*PAYLOAD_ERRORS)

    @app.post("/v1/trace", response_class=Response, responses=described)
    async def trace(request: Request, body: Annotated[TraceBody, Body()]) -> Response:
        """One question's events: what the diffusion model writes, step by step, and the device's text."""
        if not names_a_subject(backend.info.model, body.prompt):
            what = "a question about what this pair knows", "one that names nothing of it"
            remedy = f"I know {page.tracer.edge.bundle.manifest.knows}."
            raise ServiceError(422, "unknown_subject", *what, remedy)
        account = account_of(request.scope)
        return await event_stream(request.receive, _events(backend, page.tracer, body, account))


async def _events(
    backend: Backend, tracer: Tracer, body: TraceBody, account: Account
) -> AsyncGenerator[bytes]:
    asked = tracer.events(body.prompt, body.fraction, account.client, device=body.device)
    require_ready(backend)
    async with aclosing(asked) as events:
        async for event in events:
            if event.name == "payload":
                account.steps += event.data["step"]
            yield encode_event(*event)


def _static(file: Path, media_type: str, headers: dict[str, str]) -> Callable[[], Awaitable[Response]]:
    data = file.read_bytes()

    async def static() -> Response:
        return Response(data, headers=headers, media_type=media_type)

    return static
