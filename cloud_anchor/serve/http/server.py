"""uvicorn's server: a first signal lets it finish what was admitted, a second one ends it at once."""

from __future__ import annotations

import logging
import signal
import socket
import time
from types import FrameType

import uvicorn

from cloud_anchor.serve.http.middleware import RequestMiddleware
from cloud_anchor.serve.settings import Limits

log = logging.getLogger("cloud_anchor.serve")


class Server(uvicorn.Server):
    """uvicorn's server. `stopped_by`: the signal that ended it. began: as time.monotonic()."""

    def __init__(self, app: RequestMiddleware, limits: Limits, began: float | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                limit_concurrency=limits.connections,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                # An admitted request may take all of its deadline, and a slow client a little more.
                timeout_graceful_shutdown=int(limits.deadline + 15),
            )
        )
        self.began = time.monotonic() if began is None else began
        self.stopped_by: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("ready after %.1f s", time.monotonic() - self.began)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """uvicorn's own would raise the signal again once all is finished."""
        self.force_exit = self.should_exit
        self.should_exit, self.stopped_by = True, self.stopped_by or sig
        log.info("%s: %s", signal.Signals(sig).name, "ending at once" if self.force_exit else "finishing")
