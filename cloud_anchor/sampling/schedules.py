"""Schedules: the share of the masked positions that commits at each step.

Responsible for shares by step. Not responsible for which positions commit (see `scores`, `unmasking`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Schedule = Callable[[int], Tensor]
"""From the number of planned steps T to the shares, float32 [T], each in [0, 1], the last one 1."""

DREAM_EPS = 1e-3
"""The end of Dream's time, which begins at 1."""


def dream(total_steps: int) -> Tensor:
    """1 - s / t, with t and s consecutive times from 1 to 1e-3: about the same number of tokens per step.

    Computed in float32 as published: the number of tokens is the product's integer part.
    """
    times = torch.linspace(1, DREAM_EPS, total_steps + 1)
    shares = 1 - times[1:] / times[:-1]
    shares[-1] = 1
    return shares


def cosine(total_steps: int) -> Tensor:
    """A share cos(pi/2 * i/T) of the canvas is masked after step i of T (MaskGIT, arXiv 2202.04200, eq. 3.2).

    Few commits in the first steps, many in the last.
    """
    masked = [math.cos(math.pi / 2 * step / total_steps) for step in range(total_steps + 1)]
    shares = [1 - after / before for before, after in itertools.pairwise(masked)]
    shares[-1] = 1.0
    return torch.tensor(shares, dtype=torch.float32)


def linear(total_steps: int) -> Tensor:
    """1 / (T - i): as many tokens in each step, in the first ones one more where they do not divide (LLaDA).

    The number of tokens is to be rounded up; see `unmasking.quotas`.
    """
    return 1 / torch.arange(total_steps, 0, -1, dtype=torch.float32)


LINEAR = "linear"
SCHEDULES: Mapping[str, Schedule] = {"dream": dream, "cosine": cosine, LINEAR: linear}
