"""Similarity of answers besides word F1, which does not see order: over their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Fewest insertions, deletions and replacements of tokens that turn one sequence into the other."""
    target = np.asarray(other, np.int64)
    steps = np.arange(len(target) + 1)
    row = steps.copy()
    for count, token in enumerate(one, 1):
        best = np.empty_like(row)
        best[0] = count
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (target != token))
        # An insertion costs 1 per position, so the best path from the left is a running minimum of
        # (cost - position).
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])


def edit_similarity(one: Sequence[int], other: Sequence[int]) -> float:
    """1 minus the edit distance as a share of the longer sequence: 1 is equal, 0 shares no token in order."""
    longest = max(len(one), len(other))
    return 1 - edit_distance(one, other) / longest if longest else 1.0
