"""The server of the service, which tells when it is ready."""

from __future__ import annotations

import logging
import socket
import time

from cloud_anchor.serve.http.middleware import RequestMiddleware
from cloud_anchor.serve.settings import Limits
from edge_runtime.endpoint.server import Server as LimitedServer

log = logging.getLogger("cloud_anchor.serve")


class Server(LimitedServer):
    """began: as time.monotonic()."""

    def __init__(self, app: RequestMiddleware, limits: Limits, began: float | None = None) -> None:
        # An admitted request may take all of its deadline, and a slow client a little more.
        super().__init__(app, limits.connections, limits.deadline + 15, access_log=False)
        self.began = time.monotonic() if began is None else began

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("ready after %.1f s", time.monotonic() - self.began)
