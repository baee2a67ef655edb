"""State of one service: its backend, its metrics, the requests in progress, and whether it is draining.

Responsible for admission of requests while the service starts, runs and stops, and within quotas. Not
responsible for HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cloud_anchor.serve.batching.backend import Backend
from cloud_anchor.serve.errors import ServiceError, stopping
from cloud_anchor.serve.http.accounts import Account, Quotas
from cloud_anchor.serve.http.telemetry import Metrics


class Service:
    """The state behind the paths.

    draining: no new requests are admitted; those admitted are finished.
    """

    def __init__(self, backend: Backend, metrics: Metrics, quotas: Quotas) -> None:
        self.backend = backend
        self.metrics = metrics
        self.quotas = quotas
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
    async def admitted(self, account: Account, steps: int) -> AsyncIterator[None]:
        """Context of every request that computes payloads; raises ServiceError where none is admitted.

        steps: that it may run. A request whose client leaves, or whose deadline passes, is charged for all.
        """
        reason = self.unavailable()
        if reason is not None:
            raise reason
        self.quotas.take(account.key, steps)
        self.open_requests += 1
        try:
            yield
        except ServiceError as error:
            if error.status != 504:
                self.quotas.give_back(account.key, 0 if account.steps else 1, steps - account.steps)
            raise
        else:
            self.quotas.give_back(account.key, 0, steps - account.steps)
        finally:
            self.open_requests -= 1
