"""Who sent a request and what it cost: its record, and its line in the log without text of a client."""

from __future__ import annotations

import logging
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

log = logging.getLogger("cloud_anchor.serve.requests")

REQUEST_ID = "X-Request-Id"
SCOPE = "cloud_anchor.account"
"""Of an ASGI scope: its request's `Account`."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are asked for every few seconds: their lines are of level debug."""

_GOOD_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(given: bytes | None = None) -> str:
    """The id that a client has given, where it is well formed, else a new one."""
    text = "" if given is None else given.decode("latin-1")
    return text if _GOOD_ID.fullmatch(text) else secrets.token_hex(8)


@dataclass
class Account:
    """Of one request. client: its key's name, or an address. key: the name, "-" without keys.

    steps: of the diffusion model that its answer took. sent: bytes of the body.
    """

    id: str
    client: str = ""
    key: str = "-"
    status: int = 499
    steps: int = 0
    sent: int = 0
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def write(self, method: str, path: str) -> None:
        """Write the line of the log. path: one of the service's own, whatever was asked for."""
        log.log(
            logging.DEBUG if path in PROBES else logging.INFO,
            "id=%s method=%s path=%s status=%d seconds=%.3f steps=%d bytes=%d key=%s",
            self.id,
            method if method in METHODS else "-",
            path,
            self.status,
            self.seconds,
            self.steps,
            self.sent,
            self.key,
        )


def account_of(scope: Scope) -> Account:
    found: Account = scope[SCOPE]
    return found
