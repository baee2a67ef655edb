"""Experiment `unknowns`: whether doubt tells questions that a model cannot know.

As many questions about entities of the training as about entities that are in no training; the area under the
receiver operating characteristic of the doubt that payloads carry, and what carrying it costs. Not
responsible for what doubt is (see `payload.certainty`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from cloud_anchor.errors import NothingToSendError, RequestError
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.select import Selection
from common.cli import option
from lab.experiment import About, Experiment, Records, Setup
from lab.pairs.testbed import library
from lab.pairs.testbed.questions import held_out_questions
from lab.pairs.tiny.tasks import known_and_unknown
from lab.store import Record
from lab.tables import Row, Table
from payload import confidence_level, doubt, peek

RESAMPLES = 2000


@dataclass(frozen=True)
class EarlyOptions:
    """Of experiments that look at answers after a share of the steps."""

    fraction: float = option(0.1, "share of the steps")


@dataclass(frozen=True)
class Auroc:
    """How well scores separate: the share of pairs of an unknown and a known question in which the unknown
    one's is higher, ties counted half; its 95% bootstrap interval; the number of questions of both.
    """

    value: float
    low: float
    high: float
    known: int
    unknown: int


def auroc(known: Sequence[float], unknown: Sequence[float], seed: int = 0) -> Auroc | None:
    """The area for two samples of scores; None where one of them is empty."""
    if not known or not unknown:
        return None
    low_side, high_side = np.asarray(known, np.float64), np.asarray(unknown, np.float64)
    rng = np.random.default_rng(seed)
    draws = [
        _area(rng.choice(low_side, len(low_side)), rng.choice(high_side, len(high_side)))
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(draws, [2.5, 97.5])
    return Auroc(_area(low_side, high_side), float(low), float(high), len(known), len(unknown))


def _area(known: NDArray[np.float64], unknown: NDArray[np.float64]) -> float:
    ranks = stats.rankdata(np.concatenate([known, unknown]))
    above = ranks[len(known) :].sum() - len(unknown) * (len(unknown) + 1) / 2
    return float(above / (len(known) * len(unknown)))


def _testbed(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Prompts about entities of the cloud's training, and of none; raises SourceMissingError."""
    books = library.load()
    # Code needs no knowledge, and there are no unknown questions about it.
    known = [p for p in held_out_questions(books, 2 * count, seed) if p.family != "function"][:count]
    unknown = held_out_questions(books, count, seed, "neither")
    return [problem.prompt for problem in known], [problem.prompt for problem in unknown]


SOURCES: Mapping[str, Callable[[int, int], tuple[list[str], list[str]]]] = {
    "tiny": known_and_unknown,
    "testbed": _testbed,
}
"""Known and unknown prompts by the name of their world; of a count each, and a seed."""


@dataclass(frozen=True)
class Question:
    """One question; known: about an entity of the training."""

    id: str
    known: bool
    text: str


def items(setup: Setup) -> list[Question]:
    """As many questions of either kind as --prompts says; raises RequestError."""
    options = setup.options
    if len(options.sources) != 1 or options.sources[0] not in SOURCES:
        raise RequestError(f"--data: expected one of {', '.join(SOURCES)}, found {' '.join(options.sources)}")
    sides = SOURCES[options.sources[0]](options.prompts or 0, options.seed)
    return [
        Question(f"{'known' if known else 'unknown'}-{n:04d}", known, text)
        for known, side in zip((True, False), sides, strict=True)
        for n, text in enumerate(side)
    ]


def early_runs(setup: Setup, prompts: Sequence[str]) -> tuple[Sequence[Denoised], Selection]:
    """The answers after the share of the steps, denoised together, and the pipeline's own selection."""
    own: EarlyOptions = setup.own
    pipeline, base = setup.lab.pipeline, setup.lab.base
    steps = steps_for(own.fraction, base.total_steps)
    config, selection = pipeline.resolve(replace(base, steps=steps), Selection())
    ids = [pipeline.model_form.ids(prompt) for prompt in prompts]
    return denoise(pipeline.model, ids, config), selection


def measure(setup: Setup, questions: Sequence[Question]) -> Iterator[Record]:
    """The records of some questions, denoised together; with the pipeline's own selection.

    doubt: as carried. exact: the same of probabilities that are not rounded to levels. whole: one minus the
    mean probability of every token of the answer, which no payload carries. None where nothing is sent.
    """
    pipeline = setup.lab.pipeline
    runs, selection = early_runs(setup, [question.text for question in questions])
    for question, run in zip(questions, runs, strict=True):
        try:
            (result,) = pipeline.select([question.text], [run], selection)
        except NothingToSendError:
            yield {"known": question.known, "anchors": 0, "doubt": None, "exact": None, "whole": None}
            continue
        plain, data = pipeline.payload(result), pipeline.payload(result, confidence=True)
        sure = [result.run.certainty[position] for position in result.anchors.positions]
        levels = peek(data).extras.confidence
        assert levels == tuple(map(confidence_level, sure))
        every = run.certainty[: run.predicted_length]
        yield {
            "known": question.known,
            "anchors": len(sure),
            "doubt": doubt(levels),
            "exact": 1 - sum(sure) / len(sure) if sure else None,
            "whole": 1 - sum(every) / len(every) if every else None,
            "bytes": len(plain),
            "bytes_with": len(data),
        }


SCORES = {
    "doubt": "as carried: 2 bits an anchor",
    "exact": "of the anchors, not rounded",
    "whole": "of every token of the answer",
}


def tables(records: Records, about: About) -> list[Table]:
    rows: list[Row] = []
    for name, says in SCORES.items():
        known, unknown = (
            [r[name] for r in records if r["known"] is side and r[name] is not None] for side in (True, False)
        )
        row: Row = {"one minus the mean probability": says, "known": _mean(known), "unknown": _mean(unknown)}
        if area := auroc(known, unknown):
            row |= {"AUROC": area.value, "low": area.low, "high": area.high}
            row |= {"N known": area.known, "N unknown": area.unknown}
        rows.append(row)
    sent = [r for r in records if "bytes" in r]
    nothing = sum(r["doubt"] is None for r in records)
    plain, with_levels = (_mean([r[name] for r in sent]) for name in ("bytes", "bytes_with"))
    note = f"Bytes of a payload: {plain:.1f} without, {with_levels:.1f} with confidence." if sent else ""
    title = f"{len(records)} questions, {nothing} of them with nothing sent"
    columns = ("one minus the mean probability", "AUROC", "low", "high", "known", "unknown", "N known")
    return [Table("unknowns", title, (*columns, "N unknown"), rows, note)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


EXPERIMENT = Experiment(
    "unknowns",
    "Whether doubt tells questions that a model cannot know",
    measure,
    tables,
    items=items,
    options=EarlyOptions,
    defaults={"prompts": 120},
)
