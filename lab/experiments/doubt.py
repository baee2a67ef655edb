"""Experiment `doubt`: from which doubt on an answer is better not shown.

Questions as people type them (doubt.toml): on the testbed's subjects in nobody's templates, on others, and
without an answer. The share of right answers against the share declined, and the doubt that makes the most of
it, which `python -m lab.experiments.doubt` writes into the pair's bundle. Not responsible for what doubt is
(see `payload.certainty`).
"""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_anchor.errors import NothingToSendError
from cloud_anchor.shipped import PAIRS
from common.cli import CommandParser, run_command
from common.files import read_json, write_whole
from edge_runtime.bundle.manifest import MANIFEST, Manifest
from edge_runtime.errors import BundleSchemaError
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.unknowns import EarlyOptions, auroc, early_runs
from lab.options import Options
from lab.plots import Picture, png
from lab.report import print_tables
from lab.run import run
from lab.statistics import Summary, proportion
from lab.store import Record, Store
from lab.tables import Row, Table
from payload import doubt, peek

QUESTIONS = Path(__file__).with_name("doubt.toml")


@dataclass(frozen=True)
class Question:
    """A question, its kind, and the texts of which a right answer has one; none where there is no answer."""

    id: str
    kind: str
    text: str
    right: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """True where one of the texts stands in the answer as separate words."""
        return any(
            re.search(rf"(?<!\w){re.escape(each)}(?!\w)", answer, re.IGNORECASE) for each in self.right
        )


def items(setup: Setup) -> list[Question]:
    """The questions, their kinds in turn, so that any first part of them is balanced too."""
    kinds = tomllib.loads(QUESTIONS.read_text("utf-8"))
    found = [
        Question(f"{kind}-{n:03d}", kind, text, tuple(right))
        for n, row in enumerate(zip(*kinds.values(), strict=True))
        for kind, (text, *right) in zip(kinds, row, strict=True)
    ]
    return found[: setup.options.prompts]


def measure(setup: Setup, questions: Sequence[Question]) -> Iterator[Record]:
    """The device's answers to some questions, denoised together, with the pipeline's own selection.

    doubt: as carried. lowest: one minus the lowest probability of an anchor. whole: one minus the mean
    probability of every token of the answer, which no payload carries. None where nothing is sent.
    """
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0].runtime
    runs, selection = early_runs(setup, [question.text for question in questions])
    for question, early in zip(questions, runs, strict=True):
        record: Record = {"kind": question.kind, "right": False, "doubt": None, "lowest": None, "whole": None}
        try:
            (result,) = pipeline.select([question.text], [early], selection)
        except NothingToSendError:
            yield record
            continue
        data = pipeline.payload(result, confidence=True)
        answer = edge.fill(edge.read(data, question.text), edge.options())
        text = edge.bundle.tokenizer.decode([token.id for token in answer])
        sure = [result.run.certainty[position] for position in result.anchors.positions]
        every = early.certainty[: early.predicted_length]
        yield record | {
            "text": text,
            "right": question.is_right(text),
            "doubt": doubt(peek(data).extras.confidence),
            "lowest": 1 - min(sure) if sure else None,
            "whole": 1 - sum(every) / len(every) if every else None,
        }


def unsure(record: Record, score: str = "doubt") -> float:
    """The doubt of a record; above all others where none is known, for then nothing speaks for the answer."""
    return math.inf if record[score] is None else float(record[score])


def threshold(records: Records, score: str = "doubt") -> float:
    """From which doubt on answers are declined: the share of the right answers that is shown, less that of
    the wrong ones, is then largest, however many of either there are; of several such doubts the lowest. 0
    declines all, 1 none.
    """
    cuts = [0.0, *sorted({unsure(r, score) for r in records} - {math.inf}), 1.0]

    sides = {side: [unsure(r, score) for r in records if r["right"] is side] for side in (True, False)}

    def worth(cut: float) -> float:
        right, wrong = (sum(each < cut for each in of) / max(1, len(of)) for of in sides.values())
        return right - wrong

    return max(cuts, key=worth)  # the first of equals


def default(records: Records) -> float:
    """The threshold that is kept, in hundredths."""
    return math.ceil(threshold(records) * 100 - 1e-9) / 100


def _right(records: Records) -> Summary | None:
    return proportion(sum(r["right"] for r in records), len(records))


def shown_at(records: Records, cut: float) -> Row:
    """What becomes of the answers where those of this doubt and more are declined."""
    shown = [r for r in records if unsure(r) < cut]
    right = sum(r["right"] for r in shown)
    row: Row = {
        "declined": 1 - len(shown) / len(records),
        "right, of those shown": proportion(right, len(shown)),
    }
    row |= {"right answers shown": f"{right} of {sum(r['right'] for r in records)}"}
    for kind in dict.fromkeys(r["kind"] for r in records):
        mine = [r for r in records if r["kind"] == kind]
        row[f"declined, {kind}"] = sum(unsure(r) >= cut for r in mine) / len(mine)
    return row


def halves(records: Records) -> Row:
    """The same with the threshold of one half of the questions applied to the other, both ways."""
    parts = [[r for n, r in enumerate(records) if n // 3 % 2 == side] for side in (0, 1)]
    cuts = [default(part) for part in parts]
    moved = [
        r | {"doubt": 1.0 if unsure(r) >= cut else 0.0}
        for part, cut in zip(parts, reversed(cuts), strict=True)
        for r in part
    ]
    return {"not sure from": f"of the other half ({cuts[1]:g}, {cuts[0]:g})"} | shown_at(moved, 0.5)


def tables(records: Records, about: About) -> list[Table]:
    chosen = default(records)
    seen = sorted(unsure(r) for r in records if unsure(r) < math.inf)
    cuts = [*(seen[len(seen) * tenth // 10] for tenth in range(1, 10)), chosen, math.inf]
    rows: list[Row] = []
    for cut in sorted(set(cuts)):
        kept = " (kept)" if cut == chosen else ""
        label: Row = {"not sure from": "never" if cut == math.inf else f"{cut:.3f}{kept}"}
        rows.append(label | shown_at(records, cut))
    note = (
        "Kept is the doubt at which the shares of the right and of the wrong answers shown differ most. An "
        "answer whose doubt is not known, since nothing was sent, counts as declined. Right: the device's "
        "text has the answer asked for; there is none for nonsense."
    )
    found = [
        Table.of(
            "doubt",
            f"Right answers by what is declined, {len(records)} questions",
            [*rows, halves(records)],
            note,
        )
    ]
    by_kind: list[Row] = []
    for kind in dict.fromkeys(r["kind"] for r in records):
        mine = [r for r in records if r["kind"] == kind]
        by_kind.append({"questions": kind, "N": len(mine), "right": _right(mine)})
    found.append(Table.of("kinds", "Right answers by kind of question", by_kind))
    scores: list[Row] = []
    for name, says in SCORES.items():
        right, wrong = ([unsure(r, name) for r in records if r["right"] is side] for side in (True, False))
        if area := auroc(right, wrong):
            row: Row = {"one minus": says, "AUROC, wrong against right": area.value}
            scores.append(row | {"low": area.low, "high": area.high})
    return [*found, Table.of("scores", "How well doubt tells wrong answers from right ones", scores)]


SCORES: Mapping[str, str] = {
    "doubt": "the mean probability of the anchors, as carried: 2 bits each",
    "lowest": "the lowest probability of an anchor",
    "whole": "the mean probability of every token of the answer, not carried",
}


def plots(records: Records, about: About) -> Iterable[Picture]:
    cuts = sorted({unsure(r) for r in records} | {math.inf})
    points = [
        (1 - len(shown) / len(records), sum(r["right"] for r in shown) / len(shown))
        for cut in cuts
        if (shown := [r for r in records if unsure(r) < cut])
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), drawstyle="steps-post")
        axes.set(xlabel="share declined", ylabel="right, of those shown", xlim=(0, 1), ylim=(0, 1))
        at = shown_at(records, default(records))
        axes.axvline(at["declined"], color="#888", linestyle="--")

    yield Picture("doubt", "Right answers against the share declined", png(draw, (6, 4)))


EXPERIMENT = Experiment(
    "doubt",
    "From which doubt on an answer is better not shown",
    measure,
    tables,
    plots=plots,
    items=items,
    options=EarlyOptions,
    defaults={"model": "testbed"},
    together=24,
)


def keep(bundle: Path, **limits: float) -> None:
    """Writes limits of doubt, by their names, into a bundle's manifest."""
    manifest = Manifest.from_json(read_json(bundle / MANIFEST, BundleSchemaError))
    text = json.dumps(manifest.to_json() | limits, indent=1) + "\n"
    write_whole(bundle / MANIFEST, text.encode())


def set_limit(
    argv: Sequence[str] | None,
    experiment: Experiment,
    description: str,
    limit: str,
    of: Callable[[Records], float],
) -> int:
    """The command of an experiment that finds a limit of doubt: measures it and writes it into the bundle."""
    program = f"python -m lab.experiments.{experiment.name}"
    example = f"example: {program} testbed -o {experiment.name}/"
    parser = CommandParser(prog=program, description=description, epilog=example)
    parser.add_argument("pair", choices=tuple(PAIRS))
    parser.add_argument("-o", "--output", type=Path, required=True, help="results folder")
    parser.add_argument("--prompts", type=int, help="of each kind")
    parser.add_argument("--dtype", help="of the diffusion model, as of `lab run`")
    args = parser.parse_args(argv)

    def measured() -> None:
        options = Options(args.output, args.pair, prompts=args.prompts, dtype=args.dtype)
        report = run([experiment], options, EarlyOptions())
        print_tables(report.tables)
        found = of([*Store(args.output, report.settings).records(experiment.name).values()])
        keep(PAIRS[args.pair].bundle, **{limit: found})
        print(f"\n{limit} {found:g}: written to {PAIRS[args.pair].bundle / MANIFEST}")

    return run_command(experiment.name, measured, extra="experiments")


def main(argv: Sequence[str] | None = None) -> int:
    says = "are better not shown, and write that into its bundle: the default of `fill` and `--decline`"
    description = f"Measure from which doubt on a pair's answers {says}."
    return set_limit(argv, EXPERIMENT, description, "not_sure_from", default)


if __name__ == "__main__":
    sys.exit(main())
