"""The paths that say what a service is and how it fares: contract, liveness, readiness, metrics."""

from __future__ import annotations

from fastapi import FastAPI, Response

from cloud_anchor.serve.batching.backend import Backend, require_ready
from cloud_anchor.serve.errors import ServiceError, encode_json
from cloud_anchor.serve.http.error_handlers import JSON
from cloud_anchor.serve.http.openapi import COMMON_ERRORS, error_responses
from cloud_anchor.serve.http.schema import ContractAnswer, StateAnswer
from cloud_anchor.serve.http.telemetry import CONTENT_TYPE, Metrics


def install_state(app: FastAPI, backend: Backend, metrics: Metrics, *, gives_bundle: bool) -> None:
    """Adds /v1/contract, /healthz, /readyz and /metrics to an application."""

    @app.get("/v1/contract", response_model=ContractAnswer, responses=error_responses(401, *COMMON_ERRORS))
    async def contract() -> Response:
        """Contract, plan and limits, which a device needs before its first request."""
        info = backend.info
        known = {name: getattr(info, name) for name in ContractAnswer.model_fields if hasattr(info, name)}
        more = {"deadline": info.limits.deadline, "bundle": "/v1/bundle" if gives_bundle else None}
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
