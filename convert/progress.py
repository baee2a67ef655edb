"""The interface through which a conversion reports progress.

Responsible for the interface and a silent implementation. Not responsible for progress bars (see `__main__`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Progress(Protocol):
    """Receiver of progress."""

    def stage(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A stage of `total` steps; in the block, call the given function with the number of new steps."""

    def say(self, text: str) -> None:
        """Report one line of text."""


class Silent:
    """No output."""

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda steps: None

    def say(self, text: str) -> None:
        pass
