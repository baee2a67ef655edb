"""Experiment `doubt`: what the doubt of the device and of a payload say, and from which on to act.

The device answers each question alone, and with the cloud's anchors after a share of the steps. Questions
of the testbed, by who could know their answers: from which doubt of its own answer a device should ask.
Questions as people type them (doubt.toml), on the testbed's subjects, on others, and without an answer: from
which doubt that a payload carries its answer is better not shown. `python -m lab.experiments.doubt PAIR`
writes both thresholds into the pair's bundle. Not responsible for what doubt is (see `payload.extras`) or
for the modes that use it.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from cloud_anchor.errors import NothingToSendError
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.shipped import PAIRS
from common.cli import CommandParser, option, run_command
from common.files import read_json, write_whole
from edge_runtime.bundle.manifest import MANIFEST, Manifest
from edge_runtime.cloud import WATCHED, doubt_of
from edge_runtime.decode.forced import FillOptions
from edge_runtime.errors import BundleSchemaError
from edge_runtime.runtime import FillRequest
from lab.experiment import About, Experiment, Records, Setup
from lab.options import Options
from lab.pairs.testbed import library
from lab.pairs.testbed.entity import Role
from lab.pairs.testbed.grading import is_correct
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.questions import held_out_questions
from lab.run import run
from lab.statistics import Summary, proportion
from lab.store import Record, Store
from lab.tables import Row, Table
from payload import AnchorSet, doubt, peek

TYPED = Path(__file__).with_name("doubt.toml")
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
class EarlyOptions:
    fraction: float = option(0.1, "share of the steps")


@dataclass(frozen=True)
class Question:
    """kind: a role of the testbed, or a kind of doubt.toml."""

    id: str
    kind: str
    text: str
    is_right: Callable[[str], bool]


def items(setup: Setup) -> list[Question]:
    """As many of each kind as --prompts says, the kinds in turn; raises SourceMissingError."""
    count, seed = setup.options.prompts or 0, setup.options.seed
    books = library.world(library.load())
    asked: tuple[Role, ...] = ("edge", "cloud", "neither")
    sides = {TOLD: [_repeated(said) for said in told(books, count, seed)]}
    for role in asked:
        problems = held_out_questions(books, count, seed, role, KINDS)
        sides[role] = [(problem.prompt, partial(is_correct, problem)) for problem in problems]
    found = [*_in_turn(sides), *_in_turn(typed(count))]
    return [Question(f"{kind}-{n:04d}", kind, *asked) for n, kind, asked in found]


Asked = tuple[str, Callable[[str], bool]]
"""A question's text, and whether an answer is right."""


def _in_turn(sides: dict[str, list[Asked]]) -> Iterator[tuple[int, str, Asked]]:
    for n, row in enumerate(zip(*sides.values(), strict=True)):
        yield from ((n, kind, asked) for kind, asked in zip(sides, row, strict=True))


def told(books: Library, count: int, seed: int) -> list[str]:
    """Names and values to be said again, up to three, which the edge model has learned to do."""
    rng = random.Random(f"device_doubt/{seed}")
    named = [e for e in books.entities if e.kind != "word" and e.role != "neither"]
    strings = sorted({v for e in named for v in (e.name, *e.values.values()) if len(v) < 25})
    said: dict[str, None] = {}
    while len(said) < count:
        said[", ".join(rng.sample(strings, rng.randint(1, 3)))] = None
    return [*said]


def _repeated(said: str) -> Asked:
    return f"Repeat: {said}.", lambda text: said in text


def typed(count: int) -> dict[str, list[Asked]]:
    """The questions of doubt.toml by kind; right: one of the texts stands in the answer as separate words."""

    def asked(text: str, *right: str) -> Asked:
        wanted = [re.compile(rf"(?<!\w){re.escape(each)}(?!\w)", re.IGNORECASE) for each in right]
        return text, lambda answer: any(each.search(answer) for each in wanted)

    kinds = tomllib.loads(TYPED.read_text("utf-8"))
    return {kind: [asked(*row) for row in rows[:count]] for kind, rows in kinds.items()}


def measure(setup: Setup, questions: Sequence[Question]) -> Iterator[Record]:
    """alone, asked: right answers of the device without and with the cloud's anchors. device: the highest
    doubt at which a mode looks while it writes alone. carried: the doubt of the payload, None without one.
    """
    lab, edge = setup.lab, setup.lab.edges[0].runtime
    pipeline, decode = lab.pipeline, edge.bundle.tokenizer.decode
    steps = steps_for(setup.own.fraction, lab.base.total_steps)
    config, selection = pipeline.resolve(replace(lab.base, steps=steps))
    runs = denoise(pipeline.model, [pipeline.model_form.ids(each.text) for each in questions], config)
    options = FillOptions(max_tokens=lab.base.canvas)
    nothing = AnchorSet.empty(lab.base.canvas, edge.bundle.contract)
    for question, early in zip(questions, runs, strict=True):
        tokens = list(edge.fill(FillRequest(edge.prompt_ids(question.text), nothing), options))
        logprobs = [token.logprob or 0.0 for token in tokens]
        alone = question.is_right(decode([token.id for token in tokens]))
        record: Record = {"kind": question.kind, "alone": alone, "device": while_writing(logprobs)}
        try:
            (result,) = pipeline.select([question.text], [early], selection)
        except NothingToSendError:
            yield record | {"asked": alone, "bytes": 0, "carried": None}
            continue
        data = pipeline.payload(result, confidence=True)
        text = decode([token.id for token in edge.fill(edge.read(data, question.text), options)])
        size, carried = len(pipeline.payload(result)), doubt(peek(data).extras.confidence)
        yield record | {"asked": question.is_right(text), "bytes": size, "carried": carried}


def while_writing(logprobs: Sequence[float]) -> float:
    """The highest doubt from the first `WATCHED` tokens on; an answer without tokens is doubted most."""
    ends = range(min(WATCHED, len(logprobs)), len(logprobs) + 1)
    return max(doubt_of(logprobs[:end]) for end in ends) if logprobs else 1.0


def ask_from(records: Records) -> float:
    """The doubt above which to ask, in hundredths: the fewest questions, the most doubtful first, that give
    `ENOUGH` of the right answers of always asking.
    """
    ranked = sorted(records, key=lambda record: -record["device"])
    gained = np.cumsum([0] + [int(r["asked"]) - int(r["alone"]) for r in ranked])
    right = gained + sum(r["alone"] for r in records)
    count = int(np.argmax(right >= ENOUGH * right[-1]))
    return math.floor(100 * float(ranked[count]["device"])) / 100 if count < len(ranked) else 0.0


def not_sure_from(records: Records) -> float:
    """The carried doubt from which on answers are declined, in hundredths: the share of the right answers
    that is shown, less that of the wrong ones, is then largest; of several the lowest.
    """
    known = sorted({float(record["carried"]) for record in records if record["carried"] is not None})

    def worth(cut: float) -> float:
        return _shown(records, cut, right=True) - _shown(records, cut, right=False)

    return math.ceil(100 * max([0.0, *known, 1.0], key=worth) - 1e-9) / 100


def _shown(records: Records, cut: float, *, right: bool) -> float:
    """The share of the right or wrong answers whose carried doubt is below a threshold."""
    mine = [r for r in records if (r["asked"] and r["carried"] is not None) is right]
    shown = [r for r in mine if r["carried"] is not None and r["carried"] < cut]
    return len(shown) / max(1, len(mine))


def auroc(low: Sequence[float], high: Sequence[float]) -> Summary | None:
    """The share of pairs of which the second sample's is higher, ties counted half, with its bootstrap
    interval; None where a sample is empty.
    """
    if not low or not high:
        return None

    def area(low: Sequence[float], high: Sequence[float]) -> float:
        return float(stats.mannwhitneyu(high, low).statistic) / (len(low) * len(high))

    interval = stats.bootstrap(
        (low, high),
        area,
        n_resamples=999,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Summary(len(low) + len(high), area(low, high), 0.0, float(interval.low), float(interval.high))


def tables(records: Records, about: About) -> list[Table]:
    known = [record for record in records if record["kind"] in ROLES]
    written = [record for record in records if record["kind"] not in ROLES]
    found = [_kinds(records)]
    if known:
        found.append(_modes(known))
    if written:
        found.append(_declined(written))
    return [*found, _areas(known, written)]


def _kinds(records: Records) -> Table:
    rows: list[Row] = []
    for kind in dict.fromkeys(record["kind"] for record in records):
        mine = [record for record in records if record["kind"] == kind]
        row: Row = {"questions": ROLES.get(kind, kind), "N": len(mine)}
        for where in ("alone", "asked"):
            row[f"right, {where}"] = proportion(sum(r[where] for r in mine), len(mine))
        carried = [r["carried"] for r in mine if r["carried"] is not None]
        row["doubt of the device"] = float(np.mean([r["device"] for r in mine]))
        rows.append(row | {"doubt carried": float(np.mean(carried)) if carried else None})
    return Table.of("kinds", "By kind of question", rows)


def _other_half(records: Records, of: Callable[[Records], float], kinds: int) -> list[float]:
    """For each question the threshold of the half that it is not in; rows of all kinds in turn."""
    side = [n // kinds % 2 for n in range(len(records))]
    cuts = [of([r for r, one in zip(records, side, strict=True) if one != own]) for own in (0, 1)]
    return [cuts[own] for own in side]


def _modes(records: Records) -> Table:
    kept = ask_from(records)
    when = {
        "never (only_on_device)": [math.inf] * len(records),
        f"where the doubt is above {kept:g} (prefer_on_device)": [kept] * len(records),
        "the same by the other half's threshold": _other_half(records, ask_from, len(ROLES)),
        "always (prefer_in_cloud)": [-1.0] * len(records),
    }
    always = sum(bool(r["asked"]) for r in records)
    rows: list[Row] = []
    for says, cuts in when.items():
        asks = [r["device"] > cut for r, cut in zip(records, cuts, strict=True)]
        right = sum(bool(r["asked"] if ask else r["alone"]) for r, ask in zip(records, asks, strict=True))
        spent = sum(r["bytes"] for r, ask in zip(records, asks, strict=True) if ask)
        row: Row = {"the cloud is asked": says, "sent": sum(asks) / len(asks)}
        row |= {"right": proportion(right, len(records)), "of always asking": right / max(1, always)}
        rows.append(row | {"bytes a question": spent / len(records)})
    return Table.of("modes", f"Right answers by when the cloud is asked, {len(records)} questions", rows)


def _declined(records: Records) -> Table:
    kept, kinds = not_sure_from(records), len({record["kind"] for record in records})
    when = {
        "never": [math.inf] * len(records),
        f"{kept:g} (kept)": [kept] * len(records),
        "of the other half": _other_half(records, not_sure_from, kinds),
    }
    rows: list[Row] = []
    for says, cuts in when.items():
        shown = [
            r for r, cut in zip(records, cuts, strict=True) if r["carried"] is not None and r["carried"] < cut
        ]
        row: Row = {"not sure from": says, "declined": 1 - len(shown) / len(records)}
        rows.append(row | {"right, of those shown": proportion(sum(r["asked"] for r in shown), len(shown))})
    return Table.of("declined", f"Right answers by what is declined, {len(records)} questions", rows)


def _areas(known: Records, written: Records) -> Table:
    def by(records: Records, score: str, high: Callable[[Record], bool]) -> Summary | None:
        scored = [r for r in records if r[score] is not None]
        sides = [[float(r[score]) for r in scored if high(r) is side] for side in (False, True)]
        return auroc(*sides)

    unknown = [record for record in known if record["kind"] in ("cloud", "neither")]
    found = {
        "the device's, wrong alone": by(known, "device", lambda r: not r["alone"]),
        "the device's, the cloud helps": by(known, "device", lambda r: bool(r["asked"] and not r["alone"])),
        "carried, nobody was trained on it": by(unknown, "carried", lambda r: bool(r["kind"] == "neither")),
        "carried, wrong": by(written, "carried", lambda r: not r["asked"]),
    }
    rows: list[Row] = [{"doubt": says, "AUROC": area} for says, area in found.items()]
    return Table.of("areas", "How well doubt tells", rows)


EXPERIMENT = Experiment(
    "doubt",
    "From which doubt on a device asks the cloud, and an answer is better not shown",
    measure,
    tables,
    items=items,
    options=EarlyOptions,
    defaults={"model": "testbed", "prompts": 48},
    together=24,
)


def keep(bundle: Path, **limits: float) -> None:
    """Writes limits of doubt, by their names, into a bundle's manifest."""
    manifest = Manifest.from_json(read_json(bundle / MANIFEST, BundleSchemaError))
    text = json.dumps(manifest.to_json() | limits, indent=1) + "\n"
    write_whole(bundle / MANIFEST, text.encode())


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.experiments.doubt",
        description="Measure a pair's thresholds of doubt, and write them into its bundle.",
        epilog="example: python -m lab.experiments.doubt testbed -o doubt/",
    )
    parser.add_argument("pair", choices=tuple(PAIRS))
    parser.add_argument("-o", "--output", type=Path, required=True, help="results folder")
    parser.add_argument("--prompts", type=int, default=48, help="of each kind (default: 48)")
    parser.add_argument("--dtype", help="of the diffusion model, as of `lab run`")
    args = parser.parse_args(argv)

    def measured() -> None:
        report = run(
            [EXPERIMENT],
            Options(args.output, args.pair, prompts=args.prompts, dtype=args.dtype),
            EarlyOptions(),
        )
        records = [*Store(args.output, report.settings).records(EXPERIMENT.name).values()]
        known = [record for record in records if record["kind"] in ROLES]
        written = [record for record in records if record["kind"] not in ROLES]
        limits = {"ask_from": ask_from(known), "not_sure_from": not_sure_from(written)}
        keep(PAIRS[args.pair].bundle, **limits)
        print("\n".join(table.text() for table in report.tables))
        print(f"\n{limits}: written to {PAIRS[args.pair].bundle / MANIFEST}")

    return run_command("doubt", measured, extra="experiments")


if __name__ == "__main__":
    sys.exit(main())
