"""How much of what is still masked commits at each step.

Knows shares by step. Does not know which positions (see `orders`) or how a share becomes a commit (see
`commits`).
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
"""Where Dream's time ends: t runs from 1 to this."""


def dream(total_steps: int) -> Tensor:
    """1 - s / t, with t and s one step apart on a line from 1 to 1e-3: about an equal number at each step.

    Computed in float32 as published: the number of tokens is the product's integer part.
    """
    times = torch.linspace(1, DREAM_EPS, total_steps + 1)
    shares = 1 - times[1:] / times[:-1]
    shares[-1] = 1
    return shares


def cosine(total_steps: int) -> Tensor:
    """After step i of T the share cos(pi/2 * i/T) of the canvas is masked (MaskGIT, arXiv 2202.04200, eq.
    3.2).

    Few commits at first, when little is known, many at last.
    """
    masked = [math.cos(math.pi / 2 * step / total_steps) for step in range(total_steps + 1)]
    shares = [1 - after / before for before, after in itertools.pairwise(masked)]
    shares[-1] = 1.0
    return torch.tensor(shares, dtype=torch.float32)


SCHEDULES: Mapping[str, Schedule] = {"dream": dream, "cosine": cosine}
