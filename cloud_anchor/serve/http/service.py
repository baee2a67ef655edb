"""State of one service: its backend, its metrics, the requests in progress, and whether it is draining.

Responsible for admission of requests while the service starts, runs and stops. Not responsible for HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cloud_anchor.serve.batching.backend import Backend
from cloud_anchor.serve.errors import ServiceError, stopping
from cloud_anchor.serve.http.telemetry import Metrics


class Service:
    """The state behind the paths.

    draining: no new requests are admitted; those admitted are finished.
    """

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self.backend = backend
        self.metrics = metrics
        self.draining = False
        self.open_requests = 0

    def unavailable(self) -> ServiceError | None:
        """The reason for which no request can be admitted now; None where one can."""
        if self.draining:
            return stopping()
        state = self.backend.state()
        if state is None:
            return None
        return ServiceError(503, "not_ready", "a service that is ready", state, "Try again.", 5.0)

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Context of every request that computes payloads; raises ServiceError where none is admitted."""
        reason = self.unavailable()
        if reason is not None:
            raise reason
        self.open_requests += 1
        try:
            yield
        finally:
            self.open_requests -= 1
