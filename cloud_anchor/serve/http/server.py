"""uvicorn's server with a graceful shutdown in two stages.

Responsible for signals: on the first SIGTERM or SIGINT, new requests are refused (503, also at /readyz),
admitted requests are finished, then the sockets close; a second ends the process at once. Not responsible
for requests.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from types import FrameType

import uvicorn

from cloud_anchor.serve.http.middleware import RequestMiddleware
from cloud_anchor.serve.http.protocol import protocol_with
from cloud_anchor.serve.http.service import Service
from cloud_anchor.serve.settings import Limits

log = logging.getLogger("cloud_anchor.serve")


class Server(uvicorn.Server):
    """uvicorn's server with a draining stage before shutdown. `stopped_by`: the signal that ended it.

    began: as time.monotonic().
    """

    def __init__(
        self,
        app: RequestMiddleware,
        service: Service,
        limits: Limits,
        host: str,
        port: int,
        began: float | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=protocol_with(limits),
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
        self.service = service
        self.began = time.monotonic() if began is None else began
        self.stopped_by: int | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("ready after %.1f s", time.monotonic() - self.began)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.stopped_by is not None:
            log.warning("a second signal: ending at once")
            self.should_exit = self.force_exit = True
            return
        self.stopped_by = sig
        self.service.draining = True
        log.info("%s: finishing %d requests", signal.Signals(sig).name, self.service.open_requests)
        asyncio.get_running_loop().call_soon_threadsafe(self._begin_draining)

    def _begin_draining(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        """Exit once no request is open."""
        while self.service.open_requests and not self.force_exit:
            await asyncio.sleep(0.02)
        self.should_exit = True
