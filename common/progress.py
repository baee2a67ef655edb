"""Progress of long work: the interface through which it is reported, no output, a line, and bars.

Responsible for stages with their time left, and for single lines. Not responsible for what is reported.
"""

from __future__ import annotations

import sys
import time
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


class BytesLine:
    """Stages of bytes, each as a line on standard error, without a library: rewritten in place on a terminal,
    elsewhere written every ten seconds and at the end.
    """

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        began = shown = time.monotonic()
        first, done = None, 0
        live = sys.stderr.isatty()

        def show(end: str) -> None:
            seconds = time.monotonic() - began
            rate = (done - (first or 0)) / seconds if seconds else 0
            left = f", {(total - done) / rate:.0f} s left" if rate > 0 and done < total else ""
            share = 100 * done // total if total else 100
            text = f"{title} {share:3d}%  {done / 1e6:.1f} of {total / 1e6:.1f} MB{left}"
            print(f"\r\x1b[K{text}" if live else text, end=end, file=sys.stderr, flush=True)

        def step(more: int) -> None:
            nonlocal done, first, shown
            done += more
            first = done if first is None else first  # what was there before took no time
            if time.monotonic() - shown >= (0.1 if live else 10):
                shown = time.monotonic()
                show("" if live else "\n")

        try:
            yield step
        finally:
            show("\n")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


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
