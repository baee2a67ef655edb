"""Progress of long work: the interface through which it is reported, no output, and bars on a terminal.

Responsible for stages with their time left, and for single lines. Not responsible for what is reported.
"""

from __future__ import annotations

import sys
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


class Bars:
    """Bars and lines on standard error, drawn by rich, which comes with the extras `convert` and `cloud`.

    name: of the command, put before each line.
    passing: bars are shown on a terminal only, and vanish when their stage is over.
    """

    def __init__(self, name: str | None = None, *, passing: bool = False) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._prefix = f"{name}: " if name else ""
        self._passing = passing

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description:24}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(
            *columns,
            console=self._console,
            transient=self._passing,
            disable=self._passing and not sys.stderr.isatty(),
        ) as bar:
            task = bar.add_task(title, total=total)
            yield lambda steps: bar.advance(task, steps)
            bar.update(task, completed=total)  # an answer may end early

    def say(self, text: str) -> None:
        self._console.print(self._prefix + text, markup=False, highlight=False, soft_wrap=True)
