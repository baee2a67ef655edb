"""Continuous batching: answers denoised together, each joining and leaving between two of a model's steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import Answers, DiffusionModel

Name = TypeVar("Name", bound=Hashable)


class Snapshot(NamedTuple, Generic[Name]):
    """An answer after a step; `done` if it has left the batch."""

    name: Name
    run: Denoised
    done: bool


class ContinuousBatch(Generic[Name]):
    """Answers denoised together, of which any may join or leave between two steps.

    They share a configuration, except for the number of steps that each runs. Not thread-safe.
    """

    def __init__(self, model: DiffusionModel, config: DenoiseConfig) -> None:
        self.model = model
        self.config = config
        # By name, in the order of the answers' rows: the steps after which a snapshot is due, ascending.
        self._rows: dict[Name, tuple[int, ...]] = {}
        self._answers: Answers | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> list[Name]:
        return list(self._rows)

    def join(self, name: Name, prompt: Sequence[int], marks: Sequence[int] = ()) -> None:
        """Adds an answer to the next step.

        marks: steps after which a snapshot is returned, ascending; the answer leaves after the last. Default:
        config.run_steps.
        """
        started = self.model.start([prompt], self.config)
        self._answers = started if self._answers is None else self._answers.join(started)
        self._rows[name] = tuple(marks) or (self.config.run_steps,)

    def leave(self, names: Iterable[Name]) -> None:
        """Removes answers before they are done."""
        gone = set(names)
        self._keep([index for index, name in enumerate(self._rows) if name not in gone])

    def split(self) -> ContinuousBatch[Name]:
        """Moves the later half of the answers to another batch, for when all together exceed the memory."""
        other: ContinuousBatch[Name] = ContinuousBatch(self.model, self.config)
        half = (len(self._rows) + 1) // 2
        if self._answers is not None and half < len(self._rows):
            other._rows = dict(list(self._rows.items())[half:])
            other._answers = self._answers.select_rows(range(half, len(self._rows)))
            self._keep(list(range(half)))
        return other

    def step(self) -> list[Snapshot[Name]]:
        """Runs one step of every answer; returns those at a mark and those that are done.

        Where the model fails, the answers stay as they were before the step.
        """
        running = self._answers
        if running is None:
            return []
        running.advance()
        names, marks = self.names, list(self._rows.values())
        done = running.done([each[-1] for each in marks])
        reached = (index for index, steps in enumerate(running.steps) if steps in marks[index])
        marked = dict.fromkeys(reached, "steps") | dict(done)
        if not marked:
            return []
        answers = running.results(marked)
        snapshots = [
            Snapshot(names[index], answer, index in done)
            for index, answer in zip(marked, answers, strict=True)
        ]
        if done:
            self._keep([index for index in range(len(self._rows)) if index not in done])
        return snapshots

    def _keep(self, rows: Sequence[int]) -> None:
        if self._answers is not None and len(rows) < len(self._rows):
            self._answers = self._answers.select_rows(rows) if rows else None
            names = self.names
            self._rows = {names[index]: self._rows[names[index]] for index in rows}
