"""The OpenAPI description, corrected where FastAPI's own does not match the service."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer

from cloud_anchor.serve.batching.backend import Backend
from cloud_anchor.serve.http.error_handlers import JSON
from cloud_anchor.serve.http.schema import describe


def schema_of(name: str) -> dict[str, Any]:
    """A body of `schema.BODIES`, as a path's `content` names it."""
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a path for these error statuses."""
    known = [(status, HTTPStatus(status)) for status in statuses]
    content = {JSON: schema_of("ErrorAnswer")}
    return {status: {"description": of.description or of.phrase, "content": content} for status, of in known}


PAYLOAD_ERRORS = (400, 401, 403, 408, 409, 413, 415, 422, 500, 502, 503, 504)
COMMON_ERRORS = (403, 408, 413, 500)
KEY = HTTPBearer(auto_error=False, description="An API key, where the service has any.")


def install_openapi(app: FastAPI, backend: Backend, keyed: bool) -> None:
    """Replace the application's OpenAPI description. keyed: the service has API keys."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            about: dict[str, Any] = {
                "title": app.title,
                "version": app.version,
                "description": app.description,
            }
            schema = get_openapi(**about, routes=app.routes)
            parts = schema["components"]["schemas"]
            for unused in ("HTTPValidationError", "ValidationError"):
                parts.pop(unused, None)
            if keyed:
                schema["components"]["securitySchemes"] = {
                    "key": KEY.model.model_dump(mode="json", by_alias=True, exclude_none=True)
                }
                for path, operations in schema["paths"].items():
                    if path.startswith("/v1/"):
                        for operation in operations.values():
                            operation["security"] = [{"key": []}]
            app.openapi_schema = describe(schema, backend.info)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
