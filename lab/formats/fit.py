"""Fitting of the token model's weights: gradient descent (Adam) on the bits of recorded tokens.

Responsible for the score of `TokenModel.score` in floating point, and rounding the result to the integers
that both sides use. Not responsible for texts or files.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from payload.codecs.prior import END, WEIGHT_SIZES, Weights
from payload.codecs.token_model import ContextCandidate

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
    values = torch.zeros(_SIZE, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([values], RATE, (0.9, 0.99), eps=1e-9, weight_decay=2 * DECAY)
    rate = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: min(1.0, 2 * (1 - step / STEPS)))
    for step in range(1, STEPS + 1):
        adam.zero_grad()
        bits = problem.bits(values)
        bits.backward()  # type: ignore[no-untyped-call]
        adam.step()
        rate.step()
        if step % 50 == 0:
            print(f"\rfit {name}: step {step} of {STEPS}, {bits:.3f} bits per token", end="", file=sys.stderr)
    print(file=sys.stderr)
    return _rounded(values.tolist(), problem.escaped)


def _rounded(values: Sequence[float], escaped: Sequence[int]) -> Weights:
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
        importance = torch.tensor([i.importance for i in instances], dtype=torch.float64)
        self.importance = importance / importance.sum()
        number: dict[Kind, int] = {}
        slot_of, slot_kind, slot_many = [], [], []
        rows: list[tuple[int, ...]] = []
        bases, groups, owners = [], [], []
        self.escape = torch.tensor([_AT["escape"] + i.escape for i in instances])
        self.target_row = torch.full((self.count,), -1)
        self.target_kind = torch.full((self.count,), -1)
        self.escaped = [0] * WEIGHT_SIZES["escape_bits"]
        for at, instance in enumerate(instances):
            for kind, many in instance.kinds.items():
                if many:
                    slot_of.append(at)
                    slot_kind.append(number.setdefault(kind, len(number)))
                    slot_many.append(many)
            if instance.target is not None:
                self.target_row[at] = len(rows) + instance.target
            elif instance.slot is not None:
                self.target_kind[at] = number.setdefault(instance.slot, len(number))
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
        self.kinds = torch.tensor([_kind_row(kind) for kind in number])
        self.slot_of, self.slot_kind = torch.tensor(slot_of), torch.tensor(slot_kind)
        self.slot_many = torch.tensor(slot_many, dtype=torch.float64)
        self.rows, self.bases = torch.tensor(rows), torch.tensor(bases)
        self.groups, self.owners = torch.tensor(groups), torch.tensor(owners)

    def bits(self, values: Tensor) -> Tensor:
        """Mean bits per token, without the ids of escapes. Scores are in bits."""
        padded = torch.nn.functional.pad(values, (0, 1))
        kind_score = padded[self.kinds].sum(1)
        base = torch.where(self.bases >= 0, kind_score[self.bases], 0.0)
        factor = 1 + torch.where(self.bases >= 0, values[_AT["scale"] + self.groups], 0.0)
        score = base * factor + padded[self.rows].sum(1)
        escape = values[self.escape]
        total = escape.exp2()
        total = total.index_add(0, self.slot_of, self.slot_many * kind_score.exp2()[self.slot_kind])
        total = total.index_add(0, self.owners, score.exp2())
        row, kind = self.target_row, self.target_kind
        own = torch.where(row >= 0, score[row], torch.where(kind >= 0, kind_score[kind], escape))
        return ((total.log2() - own) * self.importance).sum()


def _kind_row(kind: Kind) -> tuple[int, ...]:
    known, present, rank, in_prompt, in_answer = kind
    return (
        _AT["seen" if present else "unseen"] + known,
        _AT["rank"] + rank,
        _AT["prompt_count"] + in_prompt,
        _AT["answer_count"] + in_answer,
    )
