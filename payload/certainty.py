"""Doubt: how unsure the diffusion model was of the tokens that a payload carries.

Responsible for the four levels of confidence, and for the doubt that follows from them. Not responsible for
their bytes (see `extras`) or for where a probability comes from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

BOUNDS = (0.5, 0.8, 0.95)
"""The lowest probabilities of levels 1, 2 and 3."""

MIDDLES = (0.25, 0.65, 0.875, 0.975)
"""The probability that each level stands for: the middle of its range."""


def confidence_level(probability: float) -> int:
    """The level, 0 to 3, of a probability."""
    return bisect_right(BOUNDS, probability)


def doubt(levels: Sequence[int]) -> float | None:
    """One minus the mean probability that the levels stand for, 0.025 to 0.75.

    None where there are no levels: nothing is known then, which is not the same as no doubt.
    """
    if not levels:
        return None
    return 1 - sum(MIDDLES[level] for level in levels) / len(levels)
