"""Experiment `device_doubt`: whether a device knows when to ask the cloud.

Held-out questions of the testbed, in equal parts about what the edge model knows, what only the cloud knows
and what nobody knows. The device answers alone; the cloud's anchors after a share of the steps are filled
beside it. How well the device's doubt of its own answer tells where the cloud helps, and the right answers
against the share of questions that are sent. Not responsible for the modes that use it (see
`edge_runtime.assistant`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cloud_anchor.errors import NothingToSendError
from edge_runtime.decode.forced import Token
from edge_runtime.runtime import FillRequest
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.unknowns import RESAMPLES, EarlyOptions, auroc, early_runs
from lab.pairs.problem import Problem
from lab.pairs.testbed import library
from lab.pairs.testbed.entity import Role
from lab.pairs.testbed.grading import is_correct
from lab.pairs.testbed.questions import held_out_questions
from lab.plots import Picture, png
from lab.statistics import proportion
from lab.store import Record
from lab.tables import Row, Table
from payload import AnchorSet

ROLES: dict[Role, str] = {
    "edge": "the edge model knows",
    "cloud": "only the cloud knows",
    "neither": "nobody knows",
}
ENOUGH = 0.95
"""Of the right answers of always asking, to be reached with fewer questions sent."""
FIRST = 6


@dataclass(frozen=True)
class Question:
    """A held-out problem about an entity of this role."""

    id: str
    role: str
    problem: Problem


def items(setup: Setup) -> list[Question]:
    """As many questions of each role as --prompts says, the roles in turn; raises SourceMissingError."""
    books, count = library.load(), setup.options.prompts or 0
    sides = {role: held_out_questions(books, count, setup.options.seed, role) for role in ROLES}
    return [
        Question(f"{role}-{n:04d}", role, problem)
        for n, row in enumerate(zip(*sides.values(), strict=True))
        for role, problem in zip(sides, row, strict=True)
    ]


def _mean(scores: Sequence[float]) -> float:
    return 1 - math.exp(sum(scores) / len(scores))


MEASURES: Mapping[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "mean": ("the geometric mean probability of its tokens", _mean),
    "first": (f"that of its first {FIRST} tokens", lambda scores: _mean(scores[:FIRST])),
    "lowest": ("the lowest probability of a token", lambda scores: 1 - math.exp(min(scores))),
}
"""One minus what the device's log-probabilities say of an answer; the first is what modes watch."""


def measure(setup: Setup, questions: Sequence[Question]) -> Iterator[Record]:
    """Right alone, right with the cloud's anchors, and the doubts of the answer alone: 1 for an empty one."""
    pipeline, base, edge = setup.lab.pipeline, setup.lab.base, setup.lab.edges[0].runtime
    runs, selection = early_runs(setup, [question.problem.prompt for question in questions])
    options = replace(edge.options(speculate="off"), max_tokens=base.canvas)

    def right(question: Question, tokens: Sequence[Token]) -> bool:
        return is_correct(question.problem, edge.bundle.tokenizer.decode([token.id for token in tokens]))

    for question, early in zip(questions, runs, strict=True):
        prompt = question.problem.prompt
        nothing = AnchorSet.empty(base.canvas, edge.bundle.contract)
        alone = list(edge.fill(FillRequest(edge.prompt_ids(prompt), nothing), options))
        scores = [token.logprob for token in alone if token.logprob is not None]
        record: Record = {"role": question.role, "alone": right(question, alone)}
        record |= {name: of(scores) if scores else 1.0 for name, (_, of) in MEASURES.items()}
        try:
            (result,) = pipeline.select([prompt], [early], selection)
            data = pipeline.payload(result)
            helped = right(question, list(edge.fill(edge.read(data, prompt), options)))
            yield record | {"asked": helped, "bytes": len(data)}
        except NothingToSendError:
            yield record | {"asked": record["alone"], "bytes": 0}


def sent_by(records: Records, name: str) -> list[float]:
    """Share of right answers where the k most doubtful questions are sent, for k = 0, 1, ..., all."""
    order = sorted(records, key=lambda record: -float(record[name]))
    gained = np.cumsum([int(record["asked"]) - int(record["alone"]) for record in order])
    never = sum(int(record["alone"]) for record in records)
    return [float(each) / len(records) for each in (never, *(never + gained))]


def enough(records: Records, name: str) -> float:
    """The least share of questions sent that gives `ENOUGH` of the right answers of always asking."""
    curve = sent_by(records, name)
    return next(k for k, share in enumerate(curve) if share >= ENOUGH * curve[-1]) / len(records)


def threshold(records: Records, name: str = "mean") -> float:
    """The doubt above which to ask, so that `enough` questions are sent."""
    count = round(enough(records, name) * len(records))
    doubts = sorted((float(record[name]) for record in records), reverse=True)
    return doubts[count] if count < len(doubts) else 0.0


def tables(records: Records, about: About) -> list[Table]:
    scores: list[Row] = []
    rng = np.random.default_rng(0)
    for name, (says, _) in MEASURES.items():
        sure = [float(r[name]) for r in records if not (r["asked"] and not r["alone"])]
        helped = [float(r[name]) for r in records if r["asked"] and not r["alone"]]
        draws = [
            enough([records[i] for i in rng.integers(0, len(records), len(records))], name)
            for _ in range(RESAMPLES // 10)
        ]
        low, high = np.percentile(draws, [2.5, 97.5])
        row: Row = {"one minus": says}
        if area := auroc(sure, helped):
            row |= {"AUROC, the cloud helps": area.value, "low": area.low, "high": area.high}
        row |= {f"sent for {ENOUGH:.0%}": enough(records, name), "from": float(low), "to": float(high)}
        scores.append(row)
    curve = {name: sent_by(records, name) for name in MEASURES}
    never, always = curve["mean"][0], curve["mean"][-1]
    shares: list[Row] = []
    for tenth in range(11):
        row = {"sent": tenth / 10}
        row |= {MEASURES[name][0]: each[len(records) * tenth // 10] for name, each in curve.items()}
        shares.append(row | {"at random": never + (always - never) * tenth / 10})
    kinds: list[Row] = []
    for role, says in ROLES.items():
        mine = [r for r in records if r["role"] == role]
        row = {"questions": says, "N": len(mine)}
        row |= {where: proportion(sum(r[where] for r in mine), len(mine)) for where in ("alone", "asked")}
        kinds.append(row | {"mean doubt": sum(float(r["mean"]) for r in mine) / max(1, len(mine))})
    note = (
        f"Sent for {ENOUGH:.0%}: share of questions with which {ENOUGH:.0%} of the right answers of always "
        f"asking are reached. With the first measure that is a threshold of {threshold(records):.2f}."
    )
    return [
        Table.of(
            "device_doubt", f"Whether the device knows when to ask, {len(records)} questions", scores, note
        ),
        Table.of("sent", "Right answers by the share of questions sent, the most doubtful first", shares),
        Table.of("roles", "By who knows", kinds),
    ]


def plots(records: Records, about: About) -> Iterable[Picture]:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        places = np.linspace(0, 1, len(records) + 1)
        for name, (says, _) in MEASURES.items():
            axes.plot(places, sent_by(records, name), label=says)
        curve = sent_by(records, "mean")
        axes.plot([0, 1], [curve[0], curve[-1]], color="#888", linestyle="--", label="at random")
        axes.set(xlabel="share of questions sent", ylabel="right", xlim=(0, 1), ylim=(0, 1))
        axes.legend()

    yield Picture("device_doubt", "Right answers against the share of questions sent", png(draw, (6, 4)))


EXPERIMENT = Experiment(
    "device_doubt",
    "Whether a device knows when to ask the cloud",
    measure,
    tables,
    plots=plots,
    items=items,
    options=EarlyOptions,
    defaults={"model": "testbed", "prompts": 100},
    together=24,
)
