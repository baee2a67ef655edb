"""Fitting of the token model's weights: gradient descent (Adam) on the bits of recorded tokens, in numpy.

Responsible for the score of `TokenModel.score` in floating point, its gradient, and rounding the result to
the integers that both sides use. Not responsible for texts or files.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from payload.codecs.prior import END, WEIGHT_SIZES, Weights
from payload.codecs.token_model import ContextCandidate

Floats = NDArray[np.float64]
Kind = tuple[int, ...]

STEPS = 200
RATE = 0.15
DECAY = 2e-5
"""Weight decay, in bits per token and squared bit: rare features stay near zero."""

OFFSET = 9 * 16
"""Added to every candidate's score, so that unlikely candidates have a mass of at least 1."""

_AT = dict(zip(WEIGHT_SIZES, np.cumsum([0, *WEIGHT_SIZES.values()]).tolist(), strict=False))
_SIZE = sum(WEIGHT_SIZES.values())


class Instance(NamedTuple):
    """One coded token: the features of the candidates, and which of them it was.

    kinds:      features of the slots that no context predicts -> number of such slots.
    candidates: each context candidate and its features (None for END).
    target:     index of the candidate it was; else `slot` has its features; else it was an escape.
    """

    kinds: Mapping[Kind, int]
    candidates: Sequence[tuple[ContextCandidate, Kind | None]]
    target: int | None
    slot: Kind | None
    token: int
    age: int
    escape: int
    importance: float


def fit(instances: Sequence[Instance], name: str) -> Weights:
    """Weights for these tokens, in 1/16 bits."""
    problem = _Problem(instances)
    values = np.zeros(_SIZE)
    mean, square = np.zeros(_SIZE), np.zeros(_SIZE)
    bits = 0.0
    for step in range(1, STEPS + 1):
        bits, slope = problem.cost(values)
        slope = slope + 2 * DECAY * values
        mean = 0.9 * mean + 0.1 * slope
        square = 0.99 * square + 0.01 * slope * slope
        rate = RATE * min(1.0, 2 * (1 - (step - 1) / STEPS))
        values -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-9)
        if step % 50 == 0:
            print(f"\rfit {name}: step {step} of {STEPS}, {bits:.3f} bits per token", end="", file=sys.stderr)
    print(file=sys.stderr)
    return _rounded(values, problem.escaped)


def _rounded(values: Floats, escaped: Sequence[int]) -> Weights:
    units = {
        name: [round(16 * v) for v in values[_AT[name] : _AT[name] + size]]
        for name, size in WEIGHT_SIZES.items()
    }
    for name in ("seen", "unseen", "end_age", "escape"):
        units[name] = [value + OFFSET for value in units[name]]
    # A scaled base is the base times (16 + scale) / 16, offset included: subtract what the offset adds.
    units["source"] = [
        value - (OFFSET * scale >> 4) for value, scale in zip(units["source"], units["scale"], strict=True)
    ]
    total = sum(escaped) + 0.5 * len(escaped)
    units["escape_bits"] = [max(1, round(4096 * (count + 0.5) / total)) for count in escaped]
    return Weights(**{name: tuple(value) for name, value in units.items()})


class _Problem:
    """The instances as flat arrays."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.count = len(instances)
        self.importance = np.array([i.importance for i in instances])
        self.importance /= self.importance.sum()
        number: dict[Kind, int] = {}
        slot_of, slot_kind, slot_many = [], [], []
        rows: list[tuple[int, ...]] = []
        bases, groups, owners = [], [], []
        self.escape = np.array([_AT["escape"] + i.escape for i in instances])
        target_row = np.full(self.count, -1)
        target_kind = np.full(self.count, -1)
        self.escaped = [0] * WEIGHT_SIZES["escape_bits"]
        for at, instance in enumerate(instances):
            for kind, many in instance.kinds.items():
                if many:
                    slot_of.append(at)
                    slot_kind.append(number.setdefault(kind, len(number)))
                    slot_many.append(many)
            if instance.target is not None:
                target_row[at] = len(rows) + instance.target
            elif instance.slot is not None:
                target_kind[at] = number.setdefault(instance.slot, len(number))
            else:
                self.escaped[(instance.token + 1).bit_length() - 1] += 1
            for each, features in instance.candidates:
                owners.append(at)
                groups.append(each.source)
                if features is None:
                    assert each.id == END
                    bases.append(-1)
                    rows.append(
                        (
                            _AT["end_pair"] + each.pair,
                            _AT["triple"] + each.triple,
                            _AT["end_line"] + each.prompt_match,
                            _AT["end_age"] + instance.age,
                            -1,
                        )
                    )
                else:
                    bases.append(number.setdefault(features, len(number)))
                    rows.append(
                        (
                            _AT["pair"] + each.pair,
                            _AT["triple"] + each.triple,
                            _AT["prompt_match"] + each.prompt_match,
                            _AT["answer_match"] + each.answer_match,
                            _AT["source"] + each.source,
                        )
                    )
        self.kinds = np.array([_kind_row(kind) for kind in number])
        self.slot_of, self.slot_kind = np.array(slot_of), np.array(slot_kind)
        self.slot_many = np.array(slot_many, dtype=np.float64)
        self.rows = np.array(rows)
        self.bases, self.groups, self.owners = np.array(bases), np.array(groups), np.array(owners)
        self.target_row, self.target_kind = target_row, target_kind

    def cost(self, values: Floats) -> tuple[float, Floats]:
        """Mean bits per token, without the ids of escapes, and the gradient. Scores are in bits."""
        padded = np.append(values, 0.0)
        kind_score = padded[self.kinds].sum(axis=1)
        base = np.where(self.bases >= 0, kind_score[self.bases], 0.0)
        factor = 1 + np.where(self.bases >= 0, values[_AT["scale"] + self.groups], 0.0)
        score = base * factor + padded[self.rows].sum(axis=1)
        escape = values[self.escape]
        slot_mass = self.slot_many * np.exp2(kind_score)[self.slot_kind]
        score_mass, escape_mass = np.exp2(score), np.exp2(escape)
        total = (
            np.bincount(self.slot_of, slot_mass, self.count)
            + np.bincount(self.owners, score_mass, self.count)
            + escape_mass
        )
        row, kind = self.target_row, self.target_kind
        is_row, is_kind = row >= 0, kind >= 0
        is_escape = ~is_row & ~is_kind
        own = np.where(is_row, score[row], np.where(is_kind, kind_score[kind], escape))
        bits = float(((np.log2(total) - own) * self.importance).sum())
        scaled = self.importance / total
        kind_slope = np.bincount(self.slot_kind, slot_mass * scaled[self.slot_of], len(self.kinds))
        kind_slope -= np.bincount(kind[is_kind], self.importance[is_kind], len(self.kinds))
        row_slope = score_mass * scaled[self.owners]
        row_slope -= np.bincount(row[is_row], self.importance[is_row], len(row_slope))
        inner = self.bases >= 0
        kind_slope += np.bincount(self.bases[inner], (row_slope * factor)[inner], len(self.kinds))
        slope = np.zeros(_SIZE + 1)
        for column in range(self.rows.shape[1]):
            slope += np.bincount(self.rows[:, column] % (_SIZE + 1), row_slope, _SIZE + 1)
        for column in range(self.kinds.shape[1]):
            slope += np.bincount(self.kinds[:, column] % (_SIZE + 1), kind_slope, _SIZE + 1)
        slope += np.bincount(_AT["scale"] + self.groups[inner], (row_slope * base)[inner], _SIZE + 1)
        slope += np.bincount(self.escape, escape_mass * scaled - is_escape * self.importance, _SIZE + 1)
        return bits, slope[:_SIZE]


def _kind_row(kind: Kind) -> tuple[int, ...]:
    known, present, rank, in_prompt, in_answer = kind
    return (
        _AT["seen" if present else "unseen"] + known,
        _AT["rank"] + rank,
        _AT["prompt_count"] + in_prompt,
        _AT["answer_count"] + in_answer,
    )
