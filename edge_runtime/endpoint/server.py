"""uvicorn's server with an end: on a signal what runs may go on for some seconds, then the process ends."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from common.errors import UserError
from edge_runtime.endpoint.protocol import LimitedProtocol

LINES = 50
"""Of the log, in a second."""

BACKLOG = 128
"""Connections that are taken at once, before those beyond the limit are closed."""

GRACE = 5.0
"""Seconds beyond `seconds` in which cancelled requests end; then the process does, whatever hangs."""

log = logging.getLogger("edge_runtime.endpoint")


class Server(uvicorn.Server):
    """A server of at most so many connections. `stopped_by`: the signal that ended it.

    seconds: for which requests may run on after the first signal; a second one ends them at once. began: as
    `time.monotonic`, to log how long it took until it is ready. options: of `uvicorn.Config`.
    """

    def __init__(
        self, app: ASGIApp, connections: int, seconds: float, began: float | None = None, **options: Any
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
                limit_concurrency=connections + 1,
                backlog=BACKLOG,
                ws="none",
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(seconds),
                **options,
            )
        )
        self.seconds, self.began = seconds, began
        self.stopped_by: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.began is not None:
            log.info("ready after %.1f s", time.monotonic() - self.began)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """uvicorn's own would raise the signal again once all is finished."""
        self.force_exit = self.should_exit
        if not self.should_exit:
            end = threading.Timer(self.seconds + GRACE, os._exit, (1,))
            end.daemon = True
            end.start()
        self.should_exit, self.stopped_by = True, self.stopped_by or sig
        log.info("%s: %s", signal.Signals(sig).name, "ending at once" if self.force_exit else "finishing")


def listen(host: str, port: int, error: type[UserError]) -> socket.socket:
    """A socket that listens, bound before a large model is loaded. Raises `error`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as fault:
        where = f"{host}:{port}"
        raise error(f"--port: expected an address to listen on, found {where}: {fault}") from None


class FewLines(logging.Filter):
    """Passes `LINES` in a second; the first line after tells how many were left out."""

    _second, _lines = 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            if (left_out := self._lines - LINES) > 0:
                record.msg, record.args = f"{record.getMessage()} ({left_out} lines left out before)", None
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES


def log_few_lines(form: str, level: int | str) -> None:
    """Logs to standard error."""
    handler = logging.StreamHandler()
    handler.addFilter(FewLines())
    logging.basicConfig(format=form, level=level, handlers=[handler])
