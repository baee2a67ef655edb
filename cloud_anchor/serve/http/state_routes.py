"""The paths that say what a service is and how it fares, and those that give a device its bundle: the one
that the service was started with, no other file.
"""

from __future__ import annotations

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse

from cloud_anchor.serve.batching.backend import Backend, require_ready
from cloud_anchor.serve.errors import ServiceError, encode_json
from cloud_anchor.serve.http.error_handlers import BINARY, JSON
from cloud_anchor.serve.http.openapi import COMMON_ERRORS, error_responses
from cloud_anchor.serve.http.schema import BundleAnswer, ContractAnswer, StateAnswer
from cloud_anchor.serve.http.telemetry import CONTENT_TYPE, Metrics
from edge_runtime.bundle.bundle import MANIFEST, Bundle, FileRecord, file_record

PATH = "/v1/bundle"


def install_state(app: FastAPI, backend: Backend, metrics: Metrics, *, gives_bundle: bool) -> None:
    """Adds /v1/contract, /healthz, /readyz and /metrics to an application."""

    @app.get("/v1/contract", response_model=ContractAnswer, responses=error_responses(401, *COMMON_ERRORS))
    async def contract() -> Response:
        """Contract, plan and limits, which a device needs before its first request."""
        info = backend.info
        known = {name: getattr(info, name) for name in ContractAnswer.model_fields if hasattr(info, name)}
        more = {"deadline": info.limits.deadline, "bundle": PATH if gives_bundle else None}
        return Response(encode_json(known | more), media_type=JSON)

    @app.get("/healthz", response_model=StateAnswer, responses=error_responses(*COMMON_ERRORS, 503))
    async def healthz() -> dict[str, str]:
        """Liveness: 200 while the process can serve or recover; 503 where only a restart helps."""
        reason = backend.broken()
        if reason is not None:
            raise ServiceError(503, "not_ready", "a service that can serve", reason, "Restart the process.")
        return {"status": "ok"}

    @app.get("/readyz", response_model=StateAnswer, responses=error_responses(*COMMON_ERRORS, 503))
    async def readyz() -> dict[str, str]:
        """Readiness: 200 while requests are admitted, else 503."""
        require_ready(backend)
        return {"status": "ready"}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "description": "The text format of Prometheus.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **error_responses(*COMMON_ERRORS),
        },
    )
    async def figures() -> Response:
        """Metrics for Prometheus."""
        text = metrics.text(backend.figures())
        return Response(text, headers={"Content-Type": CONTENT_TYPE})


def install_bundle(app: FastAPI, bundle: Bundle | None) -> None:
    """Adds /v1/bundle and the paths of its files to an application; None: each says that there is none."""
    records: dict[str, FileRecord] = {}
    if bundle is not None:
        records = {MANIFEST: file_record(bundle.path / MANIFEST), **bundle.manifest.records}

    def missing(found: str) -> ServiceError:
        expected = f"a file of the bundle {bundle.path.name}" if bundle else "a service that gives a bundle"
        remedy = f"See {PATH}." if bundle else "Ask whoever runs the service for it."
        return ServiceError(404, "unknown_file", expected, found, remedy)

    errors = error_responses(401, 404, *COMMON_ERRORS)

    @app.get(PATH, response_model=BundleAnswer, responses=errors)
    async def listing() -> Response:
        """The files of the bundle for this service's devices; each lies at this path and its name."""
        if bundle is None:
            raise missing("one without")
        about = {
            "name": bundle.path.resolve().name,
            "identity": bundle.contract.identity,
            "bytes": sum(record.size for record in records.values()),
            "files": {name: record.to_json() for name, record in records.items()},
        }
        return Response(encode_json(about), media_type=JSON)

    content = {BINARY: {"schema": {"type": "string", "format": "binary"}}}
    whole = {"description": "The file.", "content": content}
    part = {"description": "The part of it that the header Range asks for.", "content": content}

    @app.get(PATH + "/{name:path}", response_class=Response, responses={200: whole, 206: part, **errors})
    async def file(name: str) -> Response:
        """A file of the bundle; with `Range: bytes=N-`, from byte N on."""
        if bundle is None or name not in records:
            raise missing(repr(name[:80]))
        headers = {"ETag": f'"{records[name].sha256}"'}
        return FileResponse(bundle.path / name, media_type=BINARY, headers=headers)
