"""Experiment `device_doubt`: whether a device knows when to ask the cloud.

Questions of the testbed, in equal parts: answered by what they say themselves, about what only the edge model
was trained on, about what only the cloud was, and about what nobody was. The device answers alone; the
cloud's anchors after a share of the steps are filled beside it. How well the device's doubt of its own answer
tells where the cloud helps, and the right answers against the share of questions that are sent. `python -m
lab.experiments.device_doubt` writes the threshold into the pair's bundle. Not responsible for the modes that
use it (see `edge_runtime.session`).
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloud_anchor.errors import NothingToSendError
from edge_runtime.cloud import WATCHED, doubt_of
from edge_runtime.engine.base import log_total
from edge_runtime.predictor import read_logits
from edge_runtime.runtime import EdgeRuntime, FillRequest
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.doubt import set_limit
from lab.experiments.unknowns import RESAMPLES, Auroc, EarlyOptions, auroc, early_runs
from lab.pairs.problem import Problem
from lab.pairs.testbed import library
from lab.pairs.testbed.entity import Role
from lab.pairs.testbed.grading import is_correct
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.questions import held_out_questions
from lab.plots import Picture, png
from lab.statistics import Summary, proportion
from lab.store import Record
from lab.tables import Row, Table
from payload import AnchorSet

TOLD = "told"
ROLES: dict[str, str] = {
    TOLD: "the answer is in the question",
    "edge": "only the edge model was trained on",
    "cloud": "only the cloud was trained on",
    "neither": "nobody was trained on",
}
KINDS = ("fact", "comparison", "definition", "sum", "choice")
"""Short answers: after a tenth of the steps hardly any long one is right, whoever is asked."""
ENOUGH = 0.95
"""Of the right answers of always asking, to be reached with fewer questions sent."""


@dataclass(frozen=True)
class Question:
    """A problem, and who could know its answer: one of `ROLES`."""

    id: str
    role: str
    problem: Problem

    def is_right(self, answer: str) -> bool:
        if self.role == TOLD:
            return self.problem.answer in answer
        return is_correct(self.problem, answer)


def told(books: Library, count: int, seed: int) -> list[Problem]:
    """Names and values to be said again, up to three, which the edge model has learned to do."""
    rng = random.Random(f"device_doubt/{seed}")
    named = [e for e in books.entities if e.kind != "word" and e.role != "neither"]
    strings = sorted({v for e in named for v in (e.name, *e.values.values()) if len(v) < 25})
    said: dict[str, None] = {}
    while len(said) < count:
        said[", ".join(rng.sample(strings, rng.randint(1, 3)))] = None
    return [Problem(TOLD, "easy", f"Repeat: {s}.", s, (s,), s, split=False) for s in said]


def items(setup: Setup) -> list[Question]:
    """As many questions of each role as --prompts says, the roles in turn; raises SourceMissingError."""
    books, count, seed = library.world(library.load()), setup.options.prompts or 0, setup.options.seed
    asked: tuple[Role, ...] = ("edge", "cloud", "neither")
    sides = [told(books, count, seed), *(held_out_questions(books, count, seed, r, KINDS) for r in asked)]
    return [
        Question(f"{role}-{n:04d}", role, problem)
        for n, row in enumerate(zip(*sides, strict=True))
        for role, problem in zip(ROLES, row, strict=True)
    ]


def scores(edge: EdgeRuntime, prompt_ids: list[int], answer: list[int]) -> dict[str, list[float]]:
    """Of each token of an answer: its log-probability, the entropy where it was written, both in nats, and
    how much likelier the likeliest token was than the second.
    """
    found: dict[str, list[float]] = {"logprobs": [], "entropies": [], "margins": []}
    rows = read_logits(edge.engine, prompt_ids, answer)
    for id_, logits in zip(answer, rows, strict=False):  # the last row is behind the answer
        sure = np.asarray(logits, np.float64) - log_total(logits)
        chances = np.exp(sure)
        second, first = np.partition(chances, -2)[-2:]
        found["logprobs"].append(round(float(sure[id_]), 4))
        found["entropies"].append(round(float(-(chances * sure).sum()), 4))
        found["margins"].append(round(float(first - second), 4))
    return found


def _while_writing(record: Record) -> float:
    """The highest doubt at which the mode looks (see `assistant.DoubtfulRequest`)."""
    logprobs = record["logprobs"]
    return max(doubt_of(logprobs[:end]) for end in range(min(WATCHED, len(logprobs)), len(logprobs) + 1))


MEASURES: Mapping[str, tuple[str, Callable[[Record], float]]] = {
    "mean": ("one minus the mean probability of its tokens so far", _while_writing),
    "lowest": ("one minus the lowest probability of a token", lambda r: 1 - math.exp(min(r["logprobs"]))),
    "first": (f"one minus that of its first {WATCHED} tokens", lambda r: doubt_of(r["logprobs"][:WATCHED])),
    "entropy": (f"the entropy of the first {WATCHED}", lambda r: float(np.mean(r["entropies"][:WATCHED]))),
    "margin": (f"one minus the margin of the first {WATCHED}", lambda r: 1 - np.mean(r["margins"][:WATCHED])),
}
"""What the device's probabilities say of its own answer; the first is what modes watch."""
COMBINED = "combined"
SAYS = {name: says for name, (says, _) in MEASURES.items()} | {
    COMBINED: "all of these weighted, fitted on the other half of the questions"
}

Doubts = Mapping[str, Sequence[float]]
"""Of every question by each measure."""


def helped(record: Record) -> bool:
    return bool(record["asked"] and not record["alone"])


def wrong(record: Record) -> bool:
    return not record["alone"]


def doubts(records: Records) -> Doubts:
    """An answer without tokens is doubted most."""
    found = {
        name: [float(of(r)) if r["logprobs"] else math.inf for r in records]
        for name, (_, of) in MEASURES.items()
    }
    for values in found.values():
        top = max((v for v in values if v < math.inf), default=1.0)
        values[:] = [min(v, top) for v in values]
    wanted = np.array([helped(r) for r in records], np.float64)
    return found | {COMBINED: _weighted(np.array([*found.values()]).T, wanted)}


def _halves(count: int) -> NDArray[np.bool_]:
    """Which questions are in the first half: rows of all roles in turn."""
    return np.array([n // len(ROLES) % 2 == 0 for n in range(count)])


def _weighted(features: NDArray[np.float64], wanted: NDArray[np.float64]) -> list[float]:
    """Logistic regression with a ridge of 1, each half by the weights of the other."""
    scaled = (features - features.mean(0)) / (features.std(0) + 1e-9)
    scaled = np.column_stack([np.ones(len(scaled)), scaled])
    first, result = _halves(len(scaled)), np.zeros(len(scaled))
    for half in (first, ~first):
        rows, weights = scaled[~half], np.zeros(scaled.shape[1])
        for _ in range(20):  # Newton's steps
            chance = 1 / (1 + np.exp(-rows @ weights))
            slope = rows.T @ (wanted[~half] - chance) - weights
            curve = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.eye(len(weights))
            weights += np.linalg.solve(curve, slope)
        result[half] = scaled[half] @ weights
    return [float(value) for value in result]


def measure(setup: Setup, questions: Sequence[Question]) -> Iterator[Record]:
    """Right alone, right with the cloud's anchors, and the scores of the answer alone."""
    pipeline, base, edge = setup.lab.pipeline, setup.lab.base, setup.lab.edges[0].runtime
    runs, selection = early_runs(setup, [question.problem.prompt for question in questions])
    options = replace(edge.options(), max_tokens=base.canvas)
    decode = edge.bundle.tokenizer.decode
    for question, early in zip(questions, runs, strict=True):
        prompt = question.problem.prompt
        prompt_ids, nothing = edge.prompt_ids(prompt), AnchorSet.empty(base.canvas, edge.bundle.contract)
        alone = [token.id for token in edge.fill(FillRequest(prompt_ids, nothing), options)]
        record: Record = {"role": question.role, "alone": question.is_right(decode(alone))}
        record |= scores(edge, prompt_ids, alone)
        try:
            (result,) = pipeline.select([prompt], [early], selection)
            data = pipeline.payload(result)
            text = decode([token.id for token in edge.fill(edge.read(data, prompt), options)])
            yield record | {"asked": question.is_right(text), "bytes": len(data)}
        except NothingToSendError:
            yield record | {"asked": record["alone"], "bytes": 0}


def sent_by(records: Records, doubt: Sequence[float]) -> list[float]:
    """Share of right answers where the k most doubtful questions are sent, for k = 0, 1, ..., all."""
    order = sorted(zip(doubt, records, strict=True), key=lambda pair: -pair[0])
    gained = np.cumsum([int(record["asked"]) - int(record["alone"]) for _, record in order])
    never = sum(int(record["alone"]) for record in records)
    return [float(each) / len(records) for each in (never, *(never + gained))]


def enough(records: Records, doubt: Sequence[float]) -> float:
    """The least share of questions sent that gives `ENOUGH` of the right answers of always asking."""
    curve = sent_by(records, doubt)
    return next(k for k, share in enumerate(curve) if share >= ENOUGH * curve[-1]) / len(records)


def threshold(records: Records, doubt: Sequence[float]) -> float:
    """The doubt above which to ask, in hundredths, so that `enough` questions are sent or a few more."""
    count = round(enough(records, doubt) * len(records))
    ranked = sorted(doubt, reverse=True)
    return math.floor(100 * ranked[count]) / 100 if count < len(ranked) else 0.0


def asked_by(records: Records, asks: Sequence[bool]) -> Row:
    """What comes of asking for these questions."""
    right = [bool(r["asked"] if ask else r["alone"]) for r, ask in zip(records, asks, strict=True)]
    spent = sum(int(r["bytes"]) for r, ask in zip(records, asks, strict=True) if ask)
    row: Row = {"sent": round(sum(asks) / len(asks), 2), "right": proportion(sum(right), len(right))}
    always = sum(bool(r["asked"]) for r in records)
    return row | {
        "of always asking": round(sum(right) / max(1, always), 2),
        "bytes a question": round(spent / len(asks), 1),
    }


def resampled(
    of: Callable[[Records, Sequence[float]], float], records: Records, doubt: Sequence[float]
) -> Summary:
    """A figure of all questions, and its 95% interval over samples of them."""
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(RESAMPLES // 5):
        chosen = rng.integers(0, len(records), len(records))
        draws.append(of([records[i] for i in chosen], [doubt[i] for i in chosen]))
    low, high = np.percentile(draws, [2.5, 97.5])
    return Summary(len(records), of(records, doubt), 0.0, float(low), float(high))


def _summary(area: Auroc | None) -> Summary | None:
    return Summary(area.known + area.unknown, area.value, 0.0, area.low, area.high) if area else None


def tables(records: Records, about: About) -> list[Table]:
    by = doubts(records)
    mean, kept = by["mean"], threshold(records, by["mean"])
    first = _halves(len(records))
    cuts = [
        threshold([r for r, mine in zip(records, half, strict=True) if mine], np.asarray(mean)[half].tolist())
        for half in (~first, first)
    ]
    elsewhere = [d > (cuts[0] if mine else cuts[1]) for d, mine in zip(mean, first, strict=True)]
    never, always = (sent_by(records, mean)[end] for end in (0, -1))
    when = {
        "never (only_on_device)": [False] * len(records),
        f"where the doubt is above {kept:g} (prefer_on_device)": [d > kept for d in mean],
        f"the same by the other half's threshold ({cuts[0]:g}, {cuts[1]:g})": elsewhere,
        "always (prefer_in_cloud)": [True] * len(records),
    }
    modes: list[Row] = [
        {"the cloud is asked": says, **asked_by(records, asks)} for says, asks in when.items()
    ]
    hard = [n for n, r in enumerate(records) if r["role"] != TOLD]
    found: list[Row] = []
    for name, says in SAYS.items():
        row: Row = {"doubt": says}
        for what, counts in (("the cloud helps", helped), ("wrong alone", wrong)):
            sides: dict[bool, list[float]] = {False: [], True: []}
            for doubt, record in zip(by[name], records, strict=True):
                sides[counts(record)].append(doubt)
            row[f"AUROC, {what}"] = _summary(auroc(sides[False], sides[True]))
        row[f"sent for {ENOUGH:.0%}"] = resampled(enough, records, by[name])
        rest = [records[n] for n in hard], [by[name][n] for n in hard]
        found.append(row | {"the same, without answers in the question": resampled(enough, *rest)})
    shares: list[Row] = []
    curves = {name: sent_by(records, doubt) for name, doubt in by.items()}
    for tenth in range(11):
        row = {"sent": tenth / 10}
        row |= {SAYS[name]: curve[len(records) * tenth // 10] for name, curve in curves.items()}
        shares.append(row | {"at random": never + (always - never) * tenth / 10})
    kinds: list[Row] = []
    for role, says in ROLES.items():
        mine = [n for n, r in enumerate(records) if r["role"] == role]
        row = {"questions": says, "N": len(mine)}
        for where in ("alone", "asked"):
            row[f"right, {where}"] = proportion(sum(records[n][where] for n in mine), len(mine))
        row["mean doubt"] = round(sum(mean[n] for n in mine) / max(1, len(mine)), 2)
        kinds.append(row | {"sent": round(sum(mean[n] > kept for n in mine) / max(1, len(mine)), 2)})
    at_random = max(0.0, (ENOUGH * always - never) / (always - never)) if always > never else 0.0
    note = (
        f"Sent for {ENOUGH:.0%}: the share of questions, the most doubtful first, with which {ENOUGH:.0%} of "
        f"the right answers of always asking are reached; questions at random take {at_random:.2f}."
    )
    return [
        Table.of("modes", f"Right answers by when the cloud is asked, {len(records)} questions", modes),
        Table.of("measures", "Whether the device knows when to ask", found, note),
        Table.of("sent", "Right answers by the share of questions sent, the most doubtful first", shares),
        Table.of("roles", "By who could know", kinds),
    ]


DRAWN = {"mean": "its tokens so far", "lowest": "its lowest token", "entropy": "the first tokens' entropy"}


def plots(records: Records, about: About) -> Iterable[Picture]:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        places, by = np.linspace(0, 1, len(records) + 1), doubts(records)
        for name, says in {**DRAWN, COMBINED: "all measures weighted"}.items():
            axes.plot(places, sent_by(records, by[name]), label=says)
        curve = sent_by(records, by["mean"])
        axes.plot([0, 1], [curve[0], curve[-1]], color="#888", linestyle="--", label="at random")
        axes.set(xlabel="share of questions sent", ylabel="right", xlim=(0, 1), ylim=(0, None))
        axes.legend(title="the most doubtful first, by", loc="lower right")

    yield Picture("device_doubt", "Right answers against the share of questions sent", png(draw, (6, 4)))


EXPERIMENT = Experiment(
    "device_doubt",
    "Whether a device knows when to ask the cloud",
    measure,
    tables,
    plots=plots,
    items=items,
    options=EarlyOptions,
    defaults={"prompts": 100},
    together=24,
)


def main(argv: Sequence[str] | None = None) -> int:
    description = (
        "Measure from which doubt on a device should ask the cloud, and write that into the pair's bundle: "
        "the threshold of mode prefer_on_device."
    )

    def found(records: Records) -> float:
        return threshold(records, doubts(records)["mean"])

    return set_limit(argv, EXPERIMENT, description, "ask_from", found)


if __name__ == "__main__":
    sys.exit(main())
