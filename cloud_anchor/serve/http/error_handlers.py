"""Exception handlers: every error of FastAPI, pydantic and ours in the service's one form of JSON."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from cloud_anchor.serve.errors import ServiceError, encode_json, internal, invalid
from cloud_anchor.serve.http.telemetry import Metrics
from edge_runtime.endpoint.presence import ClientLeftError

BINARY, JSON = "application/octet-stream", "application/json"


def install_error_handlers(app: FastAPI, metrics: Metrics) -> None:
    """Respond to every error of the application in the form of `ServiceError.body`."""

    def refuse(error: ServiceError, headers: dict[str, str] | None = None) -> Response:
        metrics.refusals.labels(error.code).inc()
        sent = error.headers() | (headers or {})
        return Response(encode_json(error.body()), error.status, sent, media_type=JSON)

    @app.exception_handler(ServiceError)
    async def known(_: Request, error: ServiceError) -> Response:
        return refuse(error)

    @app.exception_handler(ClientLeftError)
    async def left(_: Request, error: ClientLeftError) -> Response:
        metrics.left.inc()
        return Response(status_code=499)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refuse(_from_validation(request, error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        return refuse(_from_http(request, error, headers), headers)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        return refuse(internal(error))


def _from_validation(request: Request, error: RequestValidationError) -> ServiceError:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        found = repr(kind) if kind else "none"
        remedy = "Send JSON and say so."
        return ServiceError(415, "unsupported_media_type", f"Content-Type: {JSON}", found, remedy)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        fault = first.get("ctx", {}).get("error", "another text")
        return _malformed(f"{fault} at character {first['loc'][-1]}")
    where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    text = str(first["msg"]).removeprefix("Value error, ")
    expected, _, found = text.removeprefix("expected ").partition(", found ")
    if not found:
        found = "no such field" if first["type"] == "missing" else _shown(first.get("input"))
    more = f" ({len(error.errors())} such faults in all)" if len(error.errors()) > 1 else ""
    remedy = "Leave this field out." if first["type"] == "extra_forbidden" else "Correct this field."
    return invalid(f"{where}: {expected}", found + more, remedy)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except RecursionError:
        return "one that is nested too deeply"


def _malformed(found: str) -> ServiceError:
    return ServiceError(400, "malformed_json", "a JSON object", found, "Send valid JSON.")


def _from_http(request: Request, error: HTTPException, headers: dict[str, str]) -> ServiceError:
    found = f"{request.method} {request.url.path:.80}"
    if error.status_code == 404:
        remedy = "See /openapi.json."
        return ServiceError(404, "unknown_path", "one of the service's paths", found, remedy)
    if error.status_code == 405:
        allowed = headers.get("allow") or headers.get("Allow") or "another method"
        return ServiceError(405, "method_not_allowed", f"method {allowed}", found, "Use that method.")
    if error.status_code == 400:
        return _malformed("another text")
    return ServiceError(error.status_code, "http_error", "another request", str(error.detail), "Change it.")
