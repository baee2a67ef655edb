"""Statistics of samples by scipy: summaries, paired differences, effect sizes and correlations.

Not responsible for where the numbers come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

Values = Sequence[float]
Subjects = Sequence[Any] | None
"""What each value is about, by which values are resampled together; None stands for one of its own."""


@dataclass(frozen=True)
class Summary:
    """A sample: its size, mean, standard deviation (n - 1), and the mean's 95% bootstrap interval."""

    n: int
    mean: float
    std: float
    low: float
    high: float


def summary(values: Values, subjects: Subjects = None) -> Summary:
    """The summary of a sample of at least one value, whose deviation is then given as 0."""
    return ratio(values, [1.0] * len(values), subjects)


def ratio(first: Values, second: Values, subjects: Subjects = None) -> Summary:
    """The sum of a sample over that of another, of the same items; the deviation is that of what one item
    adds to it.
    """
    sample, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    named = [number if one is None else one for number, one in enumerate(subjects or [None] * len(sample))]
    cluster, names = pd.factorize(np.asarray(named, object))
    sums, counts = np.bincount(cluster, sample), np.bincount(cluster, other)
    low = high = mean = float(sample.sum() / other.sum())
    if len(names) > 1:
        interval = stats.bootstrap(
            (sums, counts),
            lambda sums, counts, axis: sums.sum(axis) / counts.sum(axis),
            n_resamples=2000,
            paired=True,
            vectorized=True,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
        low, high = float(interval.low), float(interval.high)
    std = float(np.std((sample - mean * other) / other.mean(), ddof=1)) if len(sample) > 1 else 0.0
    return Summary(len(sample), mean, std, low, high)


def share(values: Values, subjects: Subjects = None) -> Summary:
    """The summary of zeros and ones: the interval holds the bootstrap's and Wilson's, so that a rare event
    has one as well.
    """
    wilson = proportion(round(sum(values)), len(values))
    assert wilson is not None
    return _widened(summary(values, subjects), wilson.low, wilson.high)


def _widened(found: Summary, low: float, high: float) -> Summary:
    """The summary with an interval that holds this one too."""
    return replace(found, low=min(found.low, low), high=max(found.high, high))


def difference(first: Values, second: Values, subjects: Subjects = None, *, shares: bool = False) -> Summary:
    """Paired differences of two samples over the same items, first less second.

    shares: of zeros and ones; the interval then holds that of Agresti and Min (Statistics in Medicine 24,
    2005) as well, in which half a pair is added to each of the four outcomes.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    found = summary(differences, subjects)
    if not shares:
        return found
    gained, lost, n = differences.count(1) + 0.5, differences.count(-1) + 0.5, len(differences) + 2
    middle = (gained - lost) / n
    half = float(stats.norm.ppf(0.975)) * math.sqrt(gained + lost - (gained - lost) ** 2 / n) / n
    return _widened(found, max(-1.0, middle - half), min(1.0, middle + half))


def proportion(successes: int, n: int) -> Summary | None:
    """A share with its Wilson score interval (section 4.2), as a summary of zeros and ones; None where n is
    0.
    """
    if not n:
        return None
    interval = stats.binomtest(successes, n).proportion_ci(method="wilson")
    share = successes / n
    std = math.sqrt(share * (1 - share) * n / (n - 1)) if n > 1 else 0.0
    return Summary(n, share, std, float(interval.low), float(interval.high))


def wilcoxon(first: Values, second: Values) -> float:
    """Two-sided p of the Wilcoxon signed-rank test of two paired samples; 1 where every pair is equal."""
    if all(a == b for a, b in zip(first, second, strict=True)):
        return 1.0
    return float(stats.wilcoxon(first, second).pvalue)


def cohen_d(first: Values, second: Values) -> float:
    """Difference of the means over the pooled standard deviation (section 4.4).

    NaN where it is undefined: fewer than two items, or no spread in either sample.
    """
    if min(len(first), len(second)) < 2:
        return math.nan
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    weighted = (len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)
    pooled = math.sqrt(weighted / (len(a) + len(b) - 2))
    return float((a.mean() - b.mean()) / pooled) if pooled else math.nan


@dataclass(frozen=True)
class Correlation:
    """A rank correlation with its two-sided p; both NaN where a sample is constant or too small."""

    n: int
    rho: float
    p: float


def spearman(first: Values, second: Values) -> Correlation:
    """Spearman's rank correlation."""
    n = len(first)
    if n < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return Correlation(n, math.nan, math.nan)
    found = stats.spearmanr(first, second)
    return Correlation(n, float(found.statistic), float(found.pvalue))


def partial_spearman(first: Values, second: Values, given: Values) -> Correlation:
    """Spearman's correlation of two variables with a third held fixed (section 4.6).

    r_xy.z = (r_xy - r_xz r_yz) / sqrt((1 - r_xz^2)(1 - r_yz^2)), p from Student's t with n - 3 degrees.
    """
    n = len(first)
    xy, xz, yz = (spearman(a, b).rho for a, b in ((first, second), (first, given), (second, given)))
    rest = (1 - xz**2) * (1 - yz**2)
    if n < 4 or not math.isfinite(xy * xz * yz) or rest <= 1e-12:
        return Correlation(n, math.nan, math.nan)
    rho = (xy - xz * yz) / math.sqrt(rest)
    if abs(rho) >= 1:
        return Correlation(n, rho, 0.0)
    t = rho * math.sqrt((n - 3) / (1 - rho**2))
    return Correlation(n, rho, float(2 * stats.t.sf(abs(t), n - 3)))
