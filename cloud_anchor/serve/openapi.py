"""The OpenAPI description: what the service does, and not what FastAPI supposes.

Knows which refusals each path can answer with, and the ranges that depend on the model being served.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer

from cloud_anchor.serve.backend import Backend
from cloud_anchor.serve.schema import AnchorsAnswer, ErrorAnswer, describe


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    texts = {
        400: "Not JSON.",
        401: "No key, or an unknown one.",
        404: "Another model than the one served.",
        408: "The body came too slowly.",
        409: "Another contract than the service's.",
        413: "A body or a prompt that is too long.",
        415: "Another content type than application/json.",
        422: "A field that is missing, unknown or out of range.",
        500: "A fault of the service.",
        503: "Overloaded, stopping or not ready: Retry-After says when to come back.",
        504: "The deadline has passed.",
    }
    return {status: {"model": ErrorAnswer, "description": texts[status]} for status in statuses}


ASKING = (400, 401, 404, 408, 409, 413, 415, 422, 500, 503, 504)
SMALL = (408, 413, 500)
KEY = HTTPBearer(auto_error=False, description="An API key, where the service has any.")


def describe_app(app: FastAPI, backend: Backend, locked: bool) -> None:
    """Makes the OpenAPI description what the service does, and not what FastAPI supposes."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            parts = schema["components"]["schemas"]
            for unused in ("HTTPValidationError", "ValidationError"):
                parts.pop(unused, None)
            parts["AnchorsAnswer"] = AnchorsAnswer.model_json_schema()
            if locked:
                schema["components"]["securitySchemes"] = {
                    "key": KEY.model.model_dump(mode="json", by_alias=True, exclude_none=True)
                }
                for path, operations in schema["paths"].items():
                    if path.startswith("/v1/"):
                        for operation in operations.values():
                            operation["security"] = [{"key": []}]
            app.openapi_schema = describe(schema, backend.facts)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
