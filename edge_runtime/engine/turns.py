"""Turns: a number of places, taken in the order in which they are asked for."""

from __future__ import annotations

from collections import deque
from threading import Lock


class Turns:
    """A context manager that holds one of a number of places. Nobody passes ahead, as at a semaphore."""

    def __init__(self, places: int = 1) -> None:
        self._free = places
        self._waiting: deque[Lock] = deque()
        self._lock = Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            called = Lock()
            called.acquire()
            self._waiting.append(called)
        try:
            called.acquire()
        except BaseException:  # an interrupt
            with self._lock:
                left = called in self._waiting
                if left:
                    self._waiting.remove(called)
            if not left:
                self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
