"""A model's own answers as what its sampler sees on the way to them: a prompt, and a canvas behind it.

Responsible for canvases, for the rows of each step and their split into passes. Not responsible for which
positions are masked (see `states`) or for padding prompts (see `cloud_anchor.model.dream`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lab.distil.states import hidden
from lab.pairs.trainer import TAIL


@dataclass(frozen=True)
class FinishedRow:
    """A prompt's tokens and those of its answer, with the pass that found each; end: the marker behind it."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    passes: tuple[int, ...]
    end: int


@dataclass(frozen=True)
class CanvasState:
    """Rows of one pass.

    canvas:  int64 [B, C], the finished answer, its end marker, and the marker that fills what is behind.
    masked:  bool [B, C]. weights: float32 [B, C], of the loss.
    """

    prompts: list[tuple[int, ...]]
    canvas: Tensor
    masked: Tensor
    weights: Tensor

    @property
    def tokens(self) -> int:
        """Positions that the pass runs."""
        return len(self.prompts) * (max(map(len, self.prompts)) + self.canvas.shape[1])

    @property
    def weight(self) -> float:
        """Of all masked positions together."""
        return float(self.weights[self.masked].sum())

    def shown(self, mask_id: int) -> Tensor:
        """The canvas as the model sees it."""
        return torch.where(self.masked, mask_id, self.canvas)

    def weighed(self, factor: Tensor) -> CanvasState:
        return replace(self, weights=self.weights * factor)


class Canvases:
    """The rows of a run; those of a step are a function of the seed and the step alone."""

    def __init__(self, rows: Sequence[FinishedRow], canvas: int, pad: int, *, tokens: int, seed: int) -> None:
        """pad: the end marker that fills a canvas. tokens: of a step, about."""
        self._rows, self._canvas, self._pad, self._seed = rows, canvas, pad, seed
        mean = canvas + sum(len(row.prompt) for row in rows) / len(rows)
        self.rows_a_step = max(1, round(tokens / mean))

    def steps(self, times: float) -> int:
        """Steps that show each row so many times."""
        return max(1, round(times * len(self._rows) / self.rows_a_step))

    def at(self, step: int, most: int) -> list[CanvasState]:
        """The passes of a step, each of at most `most` tokens unless one row has more.

        All rows come once, in another order every time, before any comes again.
        """
        places = range(step * self.rows_a_step, (step + 1) * self.rows_a_step)
        epochs = {place // len(self._rows) for place in places}
        orders = {
            epoch: np.random.default_rng([self._seed, epoch]).permutation(len(self._rows)) for epoch in epochs
        }
        chosen = [self._rows[orders[place // len(self._rows)][place % len(self._rows)]] for place in places]
        chosen.sort(key=lambda row: len(row.prompt))  # little padding in a pass
        passes: list[list[FinishedRow]] = [[]]
        for row in chosen:
            if passes[-1] and (len(passes[-1]) + 1) * (len(row.prompt) + self._canvas) > most:
                passes.append([])
            passes[-1].append(row)
        rng = np.random.default_rng([self._seed, step, 1])
        return [self._state(rows, rng) for rows in passes]

    def _state(self, rows: Sequence[FinishedRow], rng: np.random.Generator) -> CanvasState:
        canvas = torch.full((len(rows), self._canvas), self._pad)
        masked = torch.zeros(canvas.shape, dtype=torch.bool)
        weights = torch.ones(canvas.shape)
        for place, row in enumerate(rows):
            end = len(row.ids)
            canvas[place, : end + 1] = torch.tensor([*row.ids, row.end])
            masked[place] = hidden(0, end, self._canvas, row.passes, rng)
            weights[place, end + 1 :] = TAIL
        return CanvasState([row.prompt for row in rows], canvas, masked, weights)
