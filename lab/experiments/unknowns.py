"""Whether doubt tells questions that a model cannot know: `python -m lab.experiments.unknowns`.

As many questions about entities of the training as about entities that are in no training; the area under the
receiver operating characteristic of the doubt that payloads carry, and what carrying it costs. Resumable;
writes JSON. Responsible for the questions and the figures. Not responsible for what doubt is (see
`payload.certainty`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from cloud_anchor.errors import NothingToSendError
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.select import Selection
from common.cli import run_command
from lab.case import Lab
from lab.loading import Wanted, fingerprint, open_lab
from lab.pairs.testbed import library
from lab.pairs.testbed.questions import held_out_questions
from lab.pairs.tiny.tasks import known_and_unknown
from lab.store import Record, Store
from payload import confidence_level, doubt, peek

BATCH = 8
PHASE = "unknowns"
RESAMPLES = 2000


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


def measure(lab: Lab, prompts: Sequence[tuple[str, bool, str]], fraction: float) -> Iterator[Record]:
    """The records of prompts (id, known, text), denoised together; with the pipeline's own selection.

    doubt: as carried. exact: the same of probabilities that are not rounded to levels. whole: one minus the
    mean probability of every token of the answer, which no payload carries. None where nothing is sent.
    """
    pipeline = lab.pipeline
    base, selection = lab.base, Selection()
    config, selection = pipeline.resolve(
        replace(base, steps=steps_for(fraction, base.total_steps)), selection
    )
    runs = denoise(
        pipeline.model,
        [pipeline.model_form.ids(text) for _, _, text in prompts],
        config,
        guide=pipeline.guide,
    )
    for (id_, known, text), run in zip(prompts, runs, strict=True):
        try:
            (result,) = pipeline.select([text], [run], selection)
        except NothingToSendError:
            yield {"id": id_, "known": known, "anchors": 0, "doubt": None, "exact": None, "whole": None}
            continue
        plain, data = pipeline.payload(result), pipeline.payload(result, confidence=True)
        sure = [result.run.certainty[position] for position in result.anchors.positions]
        levels = peek(data).extras.confidence
        assert levels == tuple(map(confidence_level, sure))
        every = run.certainty[: run.predicted_length]
        yield {
            "id": id_,
            "known": known,
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


def report(records: Sequence[Record]) -> Record:
    """The figures of all records, as JSON."""
    found: Record = {"questions": len(records), "auroc": {}, "mean": {}}
    for name in SCORES:
        split = [
            [r[name] for r in records if r["known"] is known and r[name] is not None]
            for known in (True, False)
        ]
        area = auroc(split[0], split[1])
        found["auroc"][name] = None if area is None else vars(area)
        found["mean"][name] = [sum(side) / len(side) if side else None for side in split]
    sent = [r for r in records if "bytes" in r]
    found["nothing_sent"] = sum(r["doubt"] is None for r in records)
    found["bytes"] = [
        sum(r[name] for r in sent) / len(sent) if sent else None for name in ("bytes", "bytes_with")
    ]
    return found


def unknowns_table(found: Record) -> Table:
    table = Table(title=f"{found['questions']} questions, {found['nothing_sent']} of them with nothing sent")
    for column in ("one minus the mean probability", "AUROC [95%]", "known", "unknown"):
        table.add_column(column)
    for name, text in SCORES.items():
        area, means = found["auroc"][name], found["mean"][name]
        shown = "too few" if area is None else f"{area['value']:.2f} [{area['low']:.2f}, {area['high']:.2f}]"
        table.add_row(text, shown, *("-" if mean is None else f"{mean:.2f}" for mean in means))
    plain, with_levels = found["bytes"]
    if plain is not None:
        table.caption = f"bytes of a payload: {plain:.1f} without, {with_levels:.1f} with confidence"
    return table


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.experiments.unknowns",
        description="Whether doubt tells questions about things that no model has seen from others.",
        epilog="example: python -m lab.experiments.unknowns --model tiny --edge tiny-qwen --data tiny "
        "-o results/unknowns",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="resumable")
    parser.add_argument("--model", required=True, help="diffusion checkpoint: a folder or `tiny`")
    parser.add_argument("--edge", required=True, help="edge model: a bundle, or a checkpoint to convert")
    parser.add_argument("--data", choices=tuple(SOURCES), default="testbed", help="default: testbed")
    parser.add_argument("--prompts", type=int, default=120, metavar="N", help="of each half (120)")
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the steps (0.1)")
    parser.add_argument("--seed", type=int, default=0, help="which questions")
    parser.add_argument("--threads", type=int, help="of the edge model")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    args = parser.parse_args(argv)
    if args.prompts < 1:
        parser.error(f"--prompts: expected at least 1, found {args.prompts}")
    return run_command(
        "unknowns",
        lambda: _run(args),
        interrupted=f"interrupted: run the same command again to continue from {args.output}",
    )


def _run(args: argparse.Namespace) -> int:
    known, unknown = SOURCES[args.data](args.prompts, args.seed)
    named = [(f"known-{n:04d}", True, text) for n, text in enumerate(known)]
    named += [(f"unknown-{n:04d}", False, text) for n, text in enumerate(unknown)]
    wanted = Wanted(args.model, [args.edge], None, False, None, None, args.seed, "cpu", args.threads)
    lab = open_lab(wanted, args.output / "bundles")
    settings = {"data": args.data, "seed": args.seed, "fraction": args.fraction}
    store = Store(args.output, {**settings, "weights": fingerprint(lab, wanted)})
    done = store.records(PHASE)
    left = [each for each in named if each[0] not in done]
    groups = [left[begin : begin + BATCH] for begin in range(0, len(left), BATCH)]
    work = (record for group in groups for record in measure(lab, group, args.fraction))
    for record in track(work, "questions", len(left), console=Console(stderr=True)):
        store.add(PHASE, record)
    chosen = {name for name, _, _ in named}
    found = report([record for name, record in store.records(PHASE).items() if name in chosen])
    store.write("unknowns.json", json.dumps(found, indent=1) + "\n")
    if args.json:
        print(json.dumps(found))
    else:
        Console(width=None if sys.stdout.isatty() else 110).print(unknowns_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
