"""What a conversion tells its user while it works.

Knows an interface and a silent implementation; the command line brings a bar (see `__main__`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Progress(Protocol):
    def stage(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A stage of `total` steps; inside the block, call the given function with the steps just made."""

    def say(self, text: str) -> None:
        """One line for the user."""


class Silent:
    """No output."""

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda steps: None

    def say(self, text: str) -> None:
        pass
