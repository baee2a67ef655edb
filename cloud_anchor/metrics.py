"""Similarity of texts, and confidence intervals of means.

Responsible for word F1 over multisets and sets, chrF, edit distance and the bootstrap. Not responsible for
models or experiments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np


def word_f1(text: str, reference: str) -> float:
    """Multiset F1 of lower-cased words split at white space, 0 to 1 (paper section 3.2).

    The harmonic mean of precision and recall of the text's words against the reference's. Ignores order. Two
    empty texts are equal.
    """
    found, wanted = Counter(text.lower().split()), Counter(reference.lower().split())
    if not found or not wanted:
        return float(found == wanted)
    return _harmonic((found & wanted).total(), found.total(), wanted.total())


def _harmonic(common: int, found: int, wanted: int) -> float:
    """Harmonic mean of common/found and common/wanted, in the published figures' order of operations."""
    if not common:
        return 0.0
    precision, recall = common / found, common / wanted
    return 2 * precision * recall / (precision + recall)


def word_f1_set(text: str, reference: str) -> float:
    """Word F1 over sets: repeated words count once.

    The paper's published script computes this one; the published figures are those of `word_f1`.
    """
    found, wanted = set(text.lower().split()), set(reference.lower().split())
    if not found or not wanted:
        return float(found == wanted)
    return _harmonic(len(found & wanted), len(found), len(wanted))


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


class Estimate(NamedTuple):
    """A mean with its 95% confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean of a sample with the percentile bootstrap's 95% interval; raises ValueError for no values."""
    if not len(values):
        raise ValueError("expected at least one value, found none")
    sample = np.asarray(values, np.float64)
    draws = np.random.default_rng(seed).integers(0, len(sample), (resamples, len(sample)))
    low, high = np.percentile(sample[draws].mean(1), [2.5, 97.5])
    return Estimate(float(sample.mean()), float(low), float(high))
