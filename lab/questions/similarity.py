"""Similarity of texts besides word F1: over sets of words, over characters, over tokens in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from cloud_anchor.metrics import word_f1


def word_f1_set(text: str, reference: str) -> float:
    """Word F1 over sets: repeated words count once.

    The paper's published script computes this one; the published figures are those of `word_f1`.
    """
    return word_f1(_distinct(text), _distinct(reference))


def _distinct(text: str) -> str:
    return " ".join(set(text.lower().split()))


CHRF_ORDER, CHRF_BETA = 6, 2


def chrf(text: str, reference: str) -> float:
    """chrF2, 0 to 1: F-score of character n-grams up to 6, white space left out (Popovic 2015).

    Precision and recall are averaged over the orders that both texts are long enough for, and recall weighs
    twice. Sees the order of characters, and so in part that of words. Two empty texts are equal.
    """
    found, wanted = _grams("".join(text.split())), _grams("".join(reference.split()))
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if a and b]
    if not pairs:
        return float(found == wanted)
    common = [(a & b).total() for a, b in pairs]
    precision = sum(c / a.total() for c, (a, _) in zip(common, pairs, strict=True)) / len(pairs)
    recall = sum(c / b.total() for c, (_, b) in zip(common, pairs, strict=True)) / len(pairs)
    if not precision and not recall:
        return 0.0
    weight = CHRF_BETA**2
    return (1 + weight) * precision * recall / (weight * precision + recall)


@lru_cache(512)
def _grams(text: str) -> tuple[Counter[str], ...]:
    return tuple(
        Counter(text[i : i + size] for i in range(len(text) - size + 1)) for size in range(1, CHRF_ORDER + 1)
    )


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
