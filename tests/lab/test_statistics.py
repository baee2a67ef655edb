"""The suite's statistics against scipy and against other forms of their formulas."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lab.statistics import (
    cohen_d,
    difference,
    partial_spearman,
    proportion,
    ratio,
    share,
    spearman,
    summary,
    wilcoxon,
)

VALUES = st.lists(st.floats(-5, 5, width=32), min_size=4, max_size=30)


def _sample(seed: int, size: int = 40) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0, 1) for _ in range(size)]


def test_values_of_one_subject_are_resampled_together() -> None:
    values = [value for value in _sample(4, 30) for _ in range(5)]
    subjects = [number // 5 for number in range(150)]
    apart, together = summary(values), summary(values, subjects)
    assert together.mean == apart.mean
    assert 1.7 < (together.high - together.low) / (apart.high - apart.low) < 2.8, "the root of 5"
    alone = summary(values, [None] * 150)
    assert alone == apart, "what has no subject is one of its own"


@given(st.integers(0, 40), st.integers(1, 40))
def test_the_interval_of_a_share_is_never_empty(right: int, wrong: int) -> None:
    found, wilson = share([1.0] * right + [0.0] * wrong), proportion(right, right + wrong)
    assert wilson is not None
    assert found.low <= wilson.low < wilson.high <= found.high


def test_the_interval_of_a_difference_of_shares_is_never_empty() -> None:
    none = difference([0.0] * 30, [0.0] * 30, shares=True)
    assert none.mean == 0
    assert -0.1 < none.low < -0.03 < 0.03 < none.high < 0.1
    plain = difference([0.5] * 30, [0.5] * 30)
    assert (plain.low, plain.high) == (0, 0)


def test_a_summary_has_the_sample_deviation_and_an_interval_around_the_mean() -> None:
    values = _sample(0, 200)
    found = summary(values)
    assert (found.n, found.mean) == (200, pytest.approx(np.mean(values)))
    assert found.std == pytest.approx(np.std(values, ddof=1))
    error = found.std / math.sqrt(200)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert summary([0.5]).std == 0


def test_a_difference_has_an_interval() -> None:
    low, noise = [0.0] * 50, _sample(1, 50)
    assert difference([v + 3 for v in noise], low).low > 0
    assert difference(low, [v + 3 for v in noise]).high < 0
    undecided = difference([0.1, -0.1] * 25, low)
    assert undecided.low < 0 < undecided.high


def test_a_ratio_is_that_of_the_sums() -> None:
    below = [abs(value) + 1 for value in _sample(2, 200)]
    found = ratio([2 * value + 0.5 * more for value, more in zip(below, _sample(4, 200), strict=True)], below)
    error = found.std / math.sqrt(200)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert found.low < 2 < found.high
    assert ratio([1.0, 3.0], [4.0, 4.0]).mean == 0.5


def test_effects_of_equal_samples() -> None:
    a, b = _sample(2), [v + 1 for v in _sample(3)]
    pooled = math.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / 2)
    assert cohen_d(a, b) == pytest.approx((np.mean(a) - np.mean(b)) / pooled)
    assert math.isnan(cohen_d([1.0, 1.0], [1.0, 1.0]))
    assert math.isnan(cohen_d([1.0], [2.0]))
    assert wilcoxon(a, a) == 1
    assert math.isnan(spearman([1.0] * 9, a[:9]).rho)


def test_wilsons_interval_is_the_papers() -> None:
    found = proportion(87, 92)
    assert found is not None
    assert (found.n, found.mean) == (92, 87 / 92)
    assert found.low == pytest.approx(0.879, abs=5e-4)  # section 4.2
    assert proportion(0, 0) is None


def test_the_partial_correlation_is_that_of_the_residuals_of_ranks() -> None:
    z = _sample(6, 80)
    x = [v + 0.5 * e for v, e in zip(z, _sample(7, 80), strict=True)]
    y = [v + 0.5 * e for v, e in zip(z, _sample(8, 80), strict=True)]
    rx, ry, rz = (stats.rankdata(values) for values in (x, y, z))

    def residual(ranks: np.ndarray) -> np.ndarray:
        slope, intercept = np.polyfit(rz, ranks, 1)
        return np.asarray(ranks - slope * rz - intercept)

    found = partial_spearman(x, y, z)
    assert found.rho == pytest.approx(np.corrcoef(residual(rx), residual(ry))[0, 1], abs=1e-9)
    assert abs(found.rho) < spearman(x, y).rho
    t = found.rho * math.sqrt(77 / (1 - found.rho**2))
    assert found.p == pytest.approx(2 * (1 - stats.t.cdf(abs(t), 77)))
    assert math.isnan(partial_spearman([1.0] * 9, _sample(1, 9), _sample(2, 9)).rho)
