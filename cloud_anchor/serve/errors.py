"""Errors of the service: status, code, message and the JSON body of each.

Responsible for codes and texts. Not responsible for HTTP servers.

    {"error": {"code": "overloaded", "expected": "...", "found": "...", "remedy": "..."}}
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

OVERLOADED = "overloaded"


@dataclass(eq=False)
class ServiceError(Exception):
    """An error response: what was expected, what was found, what to do.

    code:        identifier for programs; stable.
    retry_after: seconds after which a retry may succeed; None where it would not help.

    All arguments are given by position, so that the error can be pickled and cross processes.
    """

    status: int
    code: str
    expected: str
    found: str
    remedy: str
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.code}: expected {self.expected}, found {self.found}. {self.remedy}"

    def body(self) -> dict[str, Any]:
        """The JSON object of the response."""
        texts = {"expected": self.expected, "found": self.found, "remedy": self.remedy}
        return {"error": {"code": self.code, **texts}}

    def headers(self) -> dict[str, str]:
        """Headers that go with the body: Retry-After, WWW-Authenticate."""
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def overloaded(expected: str, found: str, retry_after: float) -> ServiceError:
    """503: batch and queue are full."""
    remedy = f"Try again in {max(1, math.ceil(retry_after))} s."
    return ServiceError(503, OVERLOADED, expected, found, remedy, retry_after)


def invalid(expected: str, found: str, remedy: str) -> ServiceError:
    """422: a field with a value that this service does not take."""
    return ServiceError(422, "invalid_request", expected, found, remedy)


def stopping() -> ServiceError:
    found, remedy = "one that is being stopped", "Try again: another one takes its place."
    return ServiceError(503, "stopping", "a service that takes requests", found, remedy, 2.0)


def too_late(seconds: float) -> ServiceError:
    remedy = "Ask for fewer steps, or allow more time (deadline)."
    return ServiceError(504, "deadline_exceeded", f"an answer within {seconds:g} s", "none by then", remedy)


def internal(error: BaseException) -> ServiceError:
    """500: a fault of the service. The client gets the exception's class only; the log has the rest."""
    remedy = "Try again; if it stays, tell whoever runs the service. Its log has the details."
    return ServiceError(500, "internal", "no fault inside the service", type(error).__name__, remedy)


def out_of_memory() -> ServiceError:
    remedy = "Try again later or with a shorter prompt."
    return ServiceError(503, "out_of_memory", "enough memory for this request alone", "less", remedy, 5.0)


def encode_json(value: object) -> bytes:
    """Compact ASCII JSON, so that any text of a client can be repeated to it."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


_FORM = re.compile(
    r"(?P<field>^\w+: )?expected (?P<expected>.+?)[,;:]? (?:but )?found:? (?P<rest>.+)", re.DOTALL
)


def refused(error: Exception) -> ServiceError:
    """An error of the other packages as a ServiceError; their messages read "expected X, found Y. Remedy"."""
    text = str(error)
    match = _FORM.search(text)
    if match is None:
        return invalid("a request that can be served", text, "Change the request.")
    found, dot, remedy = match["rest"].partition(". ")
    if not dot:
        found, _, remedy = match["rest"].partition("; ")
    remedy = remedy.strip() or "Change the request accordingly."
    return invalid((match["field"] or "") + match["expected"], found.rstrip("."), remedy)
