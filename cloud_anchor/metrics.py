"""How close two texts are, and how sure a mean is.

Knows word F1 and the bootstrap. Does not know models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


def word_f1(text: str, reference: str) -> float:
    """Multiset F1 of lower-cased words split at white space, 0 to 1 (paper section 3.2).

    The harmonic mean of the share of the text's words that the reference has and the share of the
    reference's that the text has. Blind to order. Two empty texts are equal.
    """
    found, wanted = Counter(text.lower().split()), Counter(reference.lower().split())
    if not found or not wanted:
        return float(found == wanted)
    return 2 * (found & wanted).total() / (found.total() + wanted.total())


class Estimate(NamedTuple):
    """A mean with its 95% interval."""

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
