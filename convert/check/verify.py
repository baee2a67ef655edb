"""Verification: the difference between a converted variant and the original model.

Responsible for the figures, their thresholds, and running an engine through the reference texts. Not
responsible for the reference (see `reference`). It works with any `edge_runtime.engine.base.Engine`, so it
measures the code that runs on the device.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np
import numpy.typing as npt

from convert.check.reference import Reference, ReferenceText
from convert.errors import OptionError, VerificationError
from edge_runtime.engine.base import Engine

TIE = 1e-4
"""Logits closer than this count as equal: float32 sums in another order differ by as much."""

_FROM_BELOW = ("top1", "greedy")
_FIGURES = (*_FROM_BELOW, "mean_kl", "max_delta")
_ROWS = 64  # rows of logits held at a time


@dataclass(frozen=True)
class Figures:
    """Differences of a variant from the original in float32.

    positions:     teacher-forced positions compared.
    top1:          share of positions with the same most likely id.
    mean_kl:       mean Kullback-Leibler divergence of the variant's distribution from the original's, nats.
    max_delta:     largest absolute difference of two logits.
    greedy_tokens: ids of the original's greedy answers compared.
    greedy:        share of these ids that the variant's own greedy answers give before they first differ.
    milliseconds:  time per token of those answers on the machine of the conversion.
    """

    positions: int
    top1: float
    mean_kl: float
    max_delta: float
    greedy_tokens: int
    greedy: float
    milliseconds: float


@dataclass(frozen=True)
class Thresholds:
    """The worst figures a variant may have."""

    top1: float = 0.0
    mean_kl: float = float("inf")
    max_delta: float = float("inf")
    greedy: float = 0.0

    def failures(self, figures: Figures) -> dict[str, str]:
        """What is said of each figure out of bounds."""
        failed = {}
        for name in _FIGURES:
            value, bound, lower = getattr(figures, name), getattr(self, name), name in _FROM_BELOW
            if not (value >= bound if lower else value <= bound):  # for NaN either way
                failed[name] = f"{name} {value:.4g} (expected at {'least' if lower else 'most'} {bound:.4g})"
        return failed

    def check(self, variant: str, figures: Figures) -> None:
        """Raises VerificationError that names every figure out of bounds, and the options that accept it."""
        failed = self.failures(figures)
        if not failed:
            return
        values = {name: getattr(figures, name) for name in failed}
        numbers = all(map(math.isfinite, values.values()))
        accepting = tuple(f"{variant}.{n}={_accepted(n, value)}" for n, value in values.items() if numbers)
        accept = f", or accept it with {' '.join(f'--threshold {each}' for each in accepting)}"
        raise VerificationError(
            f"variant {variant} does not say what the original model says, over {figures.positions} "
            f"positions: {'; '.join(failed.values())}. Leave the variant out{accept if accepting else ''}.",
            accepting,
        )

    def to_json(self) -> dict[str, float | None]:
        """The bounds; null where there is none."""
        values = dataclasses.asdict(self)
        return {name: value if math.isfinite(value) else None for name, value in values.items()}

    def changed(self, setting: str, value: str) -> Thresholds:
        """These thresholds with one of them set from text; raises OptionError."""
        names = [field.name for field in dataclasses.fields(self)]
        if setting not in names:
            raise OptionError(f"threshold: expected one of {', '.join(names)}, found {setting!r}.")
        try:
            return dataclasses.replace(self, **{setting: float(value)})
        except ValueError:
            raise OptionError(f"threshold {setting}: expected a number, found {value!r}.") from None


def _accepted(name: str, value: float) -> str:
    """A bound of two digits that a figure keeps."""
    rounding = ROUND_FLOOR if name in _FROM_BELOW else ROUND_CEILING
    return str(Context(prec=2, rounding=rounding).create_decimal(value))


def compare(
    engine: Engine, reference: Reference, progress: Callable[[int], None] = lambda positions: None
) -> Figures:
    """Run an engine through the reference texts, teacher-forced and generating greedily.

    progress is called with the number of ids run since its last call.
    """
    same = start = agreed = compared = passes = 0
    kl, delta, seconds = 0.0, 0.0, 0.0
    for text in reference.texts:
        engine.rewind(0)
        for first in range(0, len(text.ids), _ROWS):
            chunk = text.ids[first : first + _ROWS]
            found = engine.append(chunk, list(range(len(chunk))))
            expected = reference.logits[start + first : start + first + len(chunk)]
            same += int(agree(expected, found).sum())
            kl += float(divergence(expected, found).sum())
            delta = float(np.maximum(delta, np.abs(expected - found).max()))  # keeps NaN
            progress(len(chunk))
        rows = reference.logits[start + text.prompt - 1 : start + len(text.ids) - 1]
        began = time.perf_counter()
        shared, length = _answer(engine, text, rows)
        seconds += time.perf_counter() - began
        agreed, compared = agreed + shared, compared + length
        passes += min(shared + 1, len(text.answer))
        progress(len(text.answer))
        start += len(text.ids)
    return Figures(
        positions=start,
        top1=same / start,
        mean_kl=kl / start,
        max_delta=delta,
        greedy_tokens=compared,
        greedy=agreed / max(1, compared),
        milliseconds=1e3 * seconds / passes,
    )


def _answer(engine: Engine, text: ReferenceText, rows: npt.NDArray[np.float32]) -> tuple[int, int]:
    """Number of ids that an engine's greedy answer shares with the original's, and number compared.

    rows: the original's logits [answer, V]. Where the answers part at a tie of these, both are right and the
    rest is not compared.
    """
    engine.rewind(text.prompt - 1)
    last = text.ids[text.prompt - 1]
    for count, expected in enumerate(text.answer):
        logits = engine.append([last], [0])[0]
        choice = int(logits.argmax())
        if choice != expected:
            tie = rows[count].max() - rows[count][choice] <= TIE
            return count, count if tie else len(text.answer)
        last = expected
    return len(text.answer), len(text.answer)


def agree(expected: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    choice = found.argmax(-1)
    chosen = np.take_along_axis(expected, choice[:, None], -1)[:, 0]
    result: npt.NDArray[np.bool_] = expected.max(-1) - chosen <= TIE
    return result & np.isfinite(found).all(-1)


def divergence(expected: npt.NDArray[np.float32], found: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Kullback-Leibler divergence of softmax(found) from softmax(expected) per row.

    Sum p (x - y) - log Z_x + log Z_y: exponentials in float32, sums in float64, so that equal rows give 0.
    """
    x = expected - expected.max(-1, keepdims=True)
    y = found - found.max(-1, keepdims=True)
    weights = np.exp(x)
    total = weights.sum(-1, dtype=np.float64)
    weights *= x - y
    mean = weights.sum(-1, dtype=np.float64) / total
    other = np.exp(y).sum(-1, dtype=np.float64)
    result: npt.NDArray[np.float64] = mean - np.log(total) + np.log(other)
    return np.maximum(result, 0.0)  # keeps NaN
