"""The HTTP application: its paths, errors and description put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from cloud_anchor.serve.batching.backend import Backend
from cloud_anchor.serve.http.chat_routes import install_chat
from cloud_anchor.serve.http.decision_routes import FormReader, install_decisions
from cloud_anchor.serve.http.error_handlers import install_error_handlers
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.http.middleware import RequestMiddleware
from cloud_anchor.serve.http.openapi import install_openapi
from cloud_anchor.serve.http.payload_routes import install_payloads
from cloud_anchor.serve.http.state_routes import install_bundle, install_state
from cloud_anchor.serve.http.telemetry import Metrics
from cloud_anchor.serve.page import Page, install_page
from cloud_anchor.serve.settings import Limits
from edge_runtime.bundle.bundle import Bundle


def create_app(
    backend: Backend,
    keys: ApiKeys,
    limits: Limits,
    metrics: Metrics | None = None,
    page: Page | None = None,
    bundle: Bundle | None = None,
    reader: FormReader | None = None,
) -> RequestMiddleware:
    """The ASGI application.

    page: served at /; None for none. bundle: given to devices; reader: of forms; None for none.
    """
    metrics = metrics or Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await backend.open()
        try:
            yield
        finally:
            await backend.close()

    app = FastAPI(
        title="Inverse speculation",
        description="Payloads of anchors: the cloud's part of an answer, to be finished on a device.",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_error_handlers(app, metrics)
    install_openapi(app, backend, bool(len(keys)))
    install_payloads(app, backend, metrics)
    install_decisions(app, backend, reader)
    install_chat(app, backend)
    install_state(app, backend, metrics, gives_bundle=bundle is not None)
    install_bundle(app, bundle)
    if page is not None:
        install_page(app, backend, page)
    return RequestMiddleware(app, metrics, keys, limits)
