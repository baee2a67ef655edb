"""State of one service behind its paths: its backend and its metrics."""

from __future__ import annotations

from typing import NamedTuple

from cloud_anchor.serve.batching.backend import Backend
from cloud_anchor.serve.errors import ServiceError
from cloud_anchor.serve.http.telemetry import Metrics


class Service(NamedTuple):
    backend: Backend
    metrics: Metrics

    def require_ready(self) -> None:
        """Raises ServiceError where no request can be admitted now."""
        reason = self.backend.state()
        if reason is not None:
            raise ServiceError(503, "not_ready", "a service that is ready", reason, "Try again.", 5.0)
