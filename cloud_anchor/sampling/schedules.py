"""Schedules: how a published sampler spreads its commits over steps and canvas (which: see `commits`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

DREAM_EPS = 1e-3
"""The end of Dream's time, which begins at 1."""


@dataclass(frozen=True)
class Schedule:
    """A published sampler's schedule.

    curve:    from the number of planned steps T to the share of the masked positions that commits in each,
              float32 [T], each in [0, 1], the last one 1.
    round_up: whether a share of the positions is rounded up to a whole number, or down.
    block:    positions of a block; blocks are written from left to right. None: the canvas is one block.
    """

    curve: Callable[[int], Tensor]
    round_up: bool = False
    block: int | None = None

    def block_size(self, canvas: int) -> int:
        """Positions of a block of a canvas; the last block may have fewer."""
        return min(self.block or canvas, canvas)

    def at(self, step: int, total_steps: int, canvas: int) -> tuple[int, Tensor]:
        """Positions, from the left, that are open in a step counted from 0, and the share that commits.

        Each block has its part of the planned steps (LLaDA, arXiv 2502.09992); all are open in the last step.
        """
        size = self.block_size(canvas)
        blocks = -(-canvas // size)
        block = step * blocks // total_steps
        first, behind = (-(-each * total_steps // blocks) for each in (block, block + 1))
        end = canvas if step == total_steps - 1 else (block + 1) * size
        return end, self.curve(behind - first)[step - first]


@cache
def dream(total_steps: int) -> Tensor:
    """1 - s / t, with t and s consecutive times from 1 to 1e-3: about the same number of tokens per step.

    Computed in float32 as published: the number of tokens is the product's integer part.
    """
    times = torch.linspace(1, DREAM_EPS, total_steps + 1)
    shares = 1 - times[1:] / times[:-1]
    shares[-1] = 1
    return shares


@cache
def linear(total_steps: int) -> Tensor:
    """1 / (T - i): as many tokens in each step, one more in the first ones where they do not divide."""
    return 1 / torch.arange(total_steps, 0, -1, dtype=torch.float32)


DREAM = Schedule(dream)
LLADA = Schedule(linear, round_up=True, block=32)
