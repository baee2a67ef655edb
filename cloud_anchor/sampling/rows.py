"""Answers with an object of their own per row: for models with a sampler or a server of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import AskedModel, DiffusionModel


class _Stepping(Protocol):
    @property
    def steps(self) -> int: ...


Row = TypeVar("Row", bound=_Stepping)


@dataclass
class RowAnswers(ABC, Generic[Row]):
    """The `Answers` in `rows`, each of which counts its own `steps`; see `protocol.Answers`."""

    model: DiffusionModel
    config: DenoiseConfig
    rows: Sequence[Row]

    @abstractmethod
    def advance(self) -> None: ...

    @abstractmethod
    def result(self, row: Row, reason: str) -> Denoised:
        """A row as it is after its last step; reason: its `stopped_by`."""

    def stopped(self, row: Row) -> str | None:
        """The reason for which a row is done before its limit, if it is."""
        return None

    @property
    def steps(self) -> Sequence[int]:
        return [row.steps for row in self.rows]

    def done(self, limits: Sequence[int]) -> Mapping[int, str]:
        found = enumerate(zip(self.rows, limits, strict=True))
        whys = {
            at: self.stopped(row) or ("steps" if row.steps >= most else None) for at, (row, most) in found
        }
        return {at: why for at, why in whys.items() if why}

    def results(self, reasons: Mapping[int, str]) -> list[Denoised]:
        return [self.result(self.rows[at], reason) for at, reason in reasons.items()]

    def select_rows(self, rows: Sequence[int]) -> Self:
        return replace(self, rows=[self.rows[at] for at in rows])

    def join(self, other: Self) -> Self:
        return replace(self, rows=[*self.rows, *other.rows])


@dataclass(frozen=True)
class AskedRow:
    """A prompt, and the steps that its server is going to be asked for."""

    prompt: Sequence[int]
    steps: int = 0


@dataclass
class AskedAnswers(RowAnswers[AskedRow]):
    """The answers of an `AskedModel`, each asked for in so many seconds, some of them side by side."""

    model: AskedModel
    seconds: float
    beside: int = 1

    def advance(self) -> None:
        self.rows = [replace(row, steps=row.steps + 1) for row in self.rows]

    def result(self, row: AskedRow, reason: str) -> Denoised:
        (run,) = self.model.runs(row.prompt, self.config, [row.steps], lambda: self.seconds)
        return run if run.stopped_by == "finished" else replace(run, stopped_by=reason)

    def results(self, reasons: Mapping[int, str]) -> list[Denoised]:
        with ThreadPoolExecutor(self.beside) as pool:
            rows: list[Any] = [self.rows[at] for at in reasons]
            return list(pool.map(self.result, rows, reasons.values()))
