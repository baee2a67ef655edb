"""A folder that frames come from and go to, as files that someone else carries.

Responsible for whole files: what is written appears at once, what is read has stopped growing and is read
once; and for not filling the disk. Not responsible for what is in a file (see `qr`).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from edge_runtime.errors import LinkError

T = TypeVar("T")

LOOK_SECONDS = 0.1
"""Between two looks into the folder."""
LARGEST_FILE = 16 << 20
KEPT_OUTGOING, KEPT_TAKEN = 256, 64
"""Files at most, of those that were written or read here; the oldest go."""
OWN_NAME = r"\d{20}-\d+-\d+\..*"


class Mailbox:
    """FOLDER/outgoing, FOLDER/incoming, and FOLDER/taken for what was read; they are made where missing.

    outgoing and taken keep the latest files alone.

    Raises LinkError where the folder cannot be used.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self.outgoing, self.incoming, self.taken = (
            folder / name for name in ("outgoing", "incoming", "taken")
        )
        try:
            for place in (self.outgoing, self.incoming, self.taken):
                place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._error(error) from None
        self._seen: dict[str, tuple[int, int]] = {}  # size and time of change at the last look
        self._unreadable: dict[str, tuple[int, int]] = {}
        self._closed = threading.Event()
        self._number = 0

    def put(self, data: bytes, suffix: str) -> Path:
        """Write a file to `outgoing` under a new name; it appears there whole."""
        self._number += 1
        name = f"{time.time_ns():020}-{os.getpid()}-{self._number}{suffix}"
        beside = self._folder / f".{name}"
        try:
            beside.write_bytes(data)
            os.replace(beside, self.outgoing / name)
            _trim(self.outgoing, KEPT_OUTGOING, OWN_NAME)
        except OSError as error:
            raise self._error(error) from None
        return self.outgoing / name

    def take(self, timeout: float, read: Callable[[bytes], T | None]) -> T | None:
        """The oldest file of `incoming` for which `read` has a value, or None after so many seconds.

        A file for which it has none stays, and is read again when it has changed.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._closed.is_set():
                raise LinkError(f"{self._kind}: the link is closed; open another one")
            try:
                found = self._look(read)
            except OSError as error:
                raise self._error(error) from None
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            self._closed.wait(min(LOOK_SECONDS, left))

    def _look(self, read: Callable[[bytes], T | None]) -> T | None:
        states: dict[str, tuple[int, int]] = {}
        for entry in os.scandir(self.incoming):
            if entry.is_file() and not entry.name.startswith("."):
                state = entry.stat()
                states[entry.name] = (state.st_size, state.st_mtime_ns)
        before, self._seen = self._seen, states
        self._unreadable = {name: state for name, state in self._unreadable.items() if name in states}
        for name in sorted(states, key=lambda name: (states[name][1], name)):
            settled = before.get(name) == states[name] != self._unreadable.get(name)
            if not settled or states[name][0] > LARGEST_FILE:
                continue
            path = self.incoming / name
            found = read(path.read_bytes())
            if found is None:
                self._unreadable[name] = states[name]
                continue
            os.replace(path, self.taken / name)
            os.utime(self.taken / name)
            _trim(self.taken, KEPT_TAKEN)
            return found
        return None

    def _error(self, error: OSError) -> LinkError:
        return LinkError(f"{self._kind}: {self._folder}: {error.strerror or error}; is it a folder of yours?")

    def close(self) -> None:
        self._closed.set()


def _trim(folder: Path, most: int, name: str = r"[^.].*") -> None:
    """Delete the oldest files of such names beyond so many."""
    files = [entry for entry in os.scandir(folder) if entry.is_file() and re.fullmatch(name, entry.name)]
    with suppress(FileNotFoundError):  # who carries them takes some meanwhile
        files.sort(key=lambda entry: (entry.stat().st_mtime_ns, entry.name))
        for entry in files[: max(0, len(files) - most)]:
            os.unlink(entry.path)
