"""Experiment `doubt`: from which doubt on a device asks the cloud, and an answer is better not shown.

The device answers each question alone, and with the cloud's anchors after a tenth of the steps. Questions of
the testbed, by who could know their answers, give the doubt of its own answer from which a device should ask;
questions as people type them (doubt.toml), on the testbed's subjects, on others, and without an answer, the
doubt that a payload carries from which its answer is better not shown. `python -m lab.experiments.doubt`
writes both into a bundle. Not responsible for what doubt is (see `payload.extras`).
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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cloud_anchor.errors import NothingToSendError
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.sampler import denoise
from common.cli import option, run_options
from common.files import read_json, write_whole
from edge_runtime.bundle.manifest import MANIFEST, Manifest
from edge_runtime.cloud import WATCHED, doubt_of
from edge_runtime.decode.forced import FillOptions
from edge_runtime.errors import BundleSchemaError
from edge_runtime.runtime import FillRequest
from lab.experiment import About, Experiment, Records, Setup
from lab.pairs.testbed import library
from lab.pairs.testbed.entity import Role
from lab.pairs.testbed.grading import is_correct
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.questions import held_out_questions
from lab.records import read_records
from lab.statistics import proportion
from lab.store import Record
from lab.tables import Row, Table
from payload import AnchorSet, doubt, peek

TYPED = Path(__file__).with_name("doubt.toml")
ROLES: dict[str, str] = {
    "told": "the answer is in the question",
    "edge": "only the edge model was trained on",
    "cloud": "only the cloud was trained on",
    "neither": "nobody was trained on",
}
KINDS = ("fact", "comparison", "definition", "sum", "choice")
"""Short answers: after a tenth of the steps hardly any long one is right, whoever is asked."""
FRACTION = 0.1
ENOUGH = 0.95
"""Of the right answers of always asking, to be reached with fewer questions sent."""

Asked = tuple[str, Callable[[str], bool]]
"""A question's text, and whether an answer is right."""


class Question(NamedTuple):
    """kind: a role of the testbed, or a kind of doubt.toml."""

    id: str
    kind: str
    text: str
    is_right: Callable[[str], bool]


def items(setup: Setup) -> list[Question]:
    """As many of each kind as --prompts says, the kinds in turn; raises SourceMissingError."""
    count, seed = setup.options.prompts or 0, setup.options.seed
    books = library.world(library.load())
    known = {"told": told(books, count, seed)}
    roles: tuple[Role, ...] = ("edge", "cloud", "neither")
    for role in roles:
        problems = held_out_questions(books, count, seed, role, KINDS)
        known[role] = [(problem.prompt, partial(is_correct, problem)) for problem in problems]
    return [
        Question(f"{kind}-{n:04d}", kind, *asked)
        for kinds in (known, typed(count))
        for n, row in enumerate(zip(*kinds.values(), strict=True))
        for kind, asked in zip(kinds, row, strict=True)
    ]


def told(books: Library, count: int, seed: int) -> list[Asked]:
    """Names and values to be said again, up to three, which the edge model has learned to do."""
    rng = random.Random(f"device_doubt/{seed}")
    named = [e for e in books.entities if e.kind != "word" and e.role != "neither"]
    strings = sorted({v for e in named for v in (e.name, *e.values.values()) if len(v) < 25})
    said: dict[str, None] = {}
    while len(said) < count:
        said[", ".join(rng.sample(strings, rng.randint(1, 3)))] = None
    return [(f"Repeat: {words}.", partial(_says, words)) for words in said]


def _says(words: str, answer: str) -> bool:
    return words in answer


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
    steps = steps_for(FRACTION, lab.base.total_steps)
    config, selection = pipeline.resolve(replace(lab.base, steps=steps))
    runs = denoise(pipeline.model, [pipeline.model_form.ids(each.text) for each in questions], config)
    options = FillOptions(max_tokens=lab.base.canvas)
    nothing = AnchorSet.empty(lab.base.canvas, edge.bundle.contract)
    for question, early in zip(questions, runs, strict=True):
        tokens = list(edge.fill(FillRequest(edge.prompt_ids(question.text), nothing), options))
        alone = question.is_right(decode([token.id for token in tokens]))
        device = while_writing([token.logprob or 0.0 for token in tokens])
        record: Record = {"kind": question.kind, "alone": alone, "device": device}
        try:
            (result,) = pipeline.select([question.text], [early], selection)
        except NothingToSendError:
            yield record | {"asked": alone, "bytes": 0, "carried": None}
            continue
        data = pipeline.payload(result)
        text = decode([token.id for token in edge.fill(edge.read(data, question.text), options)])
        size, carried = len(pipeline.payload(result, confidence=False)), doubt(peek(data).extras.confidence)
        yield record | {"asked": question.is_right(text), "bytes": size, "carried": carried}


def while_writing(logprobs: Sequence[float]) -> float:
    """The highest doubt from the first `WATCHED` tokens on; an answer without tokens is doubted most."""
    ends = range(min(WATCHED, len(logprobs)), len(logprobs) + 1)
    return max(doubt_of(logprobs[:end]) for end in ends) if logprobs else 1.0


def ask_from(found: pd.DataFrame) -> float:
    """The doubt above which to ask, in hundredths: the fewest questions, the most doubtful first, that give
    `ENOUGH` of the right answers of always asking.
    """
    ranked = found.sort_values("device", ascending=False, kind="stable")
    gained = np.cumsum([0, *(ranked.asked.astype(int) - ranked.alone.astype(int))])
    right = gained + ranked.alone.sum()
    count = int(np.argmax(right >= ENOUGH * right[-1]))
    return math.floor(100 * float(ranked.device.iloc[count])) / 100 if count < len(ranked) else 0.0


def not_sure_from(found: pd.DataFrame) -> float:
    """The carried doubt from which on answers are declined, in hundredths: the share of the right answers
    that is shown, less that of the wrong ones, is then largest; of several the lowest.
    """
    right = found.asked & found.carried.notna()

    def worth(cut: float) -> float:
        shown = found.carried < cut
        return float(shown[right].sum() / max(1, right.sum()) - shown[~right].sum() / max(1, (~right).sum()))

    cuts: list[float] = [0.0, *sorted(found.carried.dropna().unique()), 1.0]
    return math.ceil(100 * max(cuts, key=worth) - 1e-9) / 100


def sides(records: Records) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The questions that choose `ask_from`, and those that choose `not_sure_from`."""
    found = pd.DataFrame(records).astype({"carried": float})
    known = found.kind.isin(list(ROLES))
    return found[known], found[~known]


def _of_the_other_half(found: pd.DataFrame, threshold: Callable[[pd.DataFrame], float]) -> Any:
    """For each question the threshold of the half that it is not in; rows of all kinds in turn."""
    half = np.arange(len(found)) // found.kind.nunique() % 2
    return np.where(half, threshold(found[half == 0]), threshold(found[half == 1]))


def tables(records: Records, about: About) -> list[Table]:
    known, written = sides(records)
    kinds: list[Row] = [
        {
            "questions": ROLES.get(kind, kind),
            "N": len(mine),
            "right, alone": proportion(mine.alone.sum(), len(mine)),
            "right, asked": proportion(mine.asked.sum(), len(mine)),
            "doubt of the device": float(mine.device.mean()),
            "doubt carried": float(mine.carried.mean()),
        }
        for kind, mine in pd.concat([known, written]).groupby("kind", sort=False)
    ]
    return [Table.of("kinds", "By kind of question", kinds), _modes(known), _declined(written)]


def _modes(found: pd.DataFrame) -> Table:
    kept = ask_from(found)
    when = {
        "never (only_on_device)": math.inf,
        f"where the doubt is above {kept:g} (prefer_on_device)": kept,
        "the same by the other half's threshold": _of_the_other_half(found, ask_from),
        "always (prefer_in_cloud)": -1.0,
    }
    rows: list[Row] = []
    for says, cut in when.items():
        asks = found.device > cut
        right = found.asked.where(asks, found.alone).sum()
        row: Row = {"the cloud is asked": says, "sent": float(asks.mean())}
        row |= {"right": proportion(right, len(found)), "of always asking": right / max(1, found.asked.sum())}
        rows.append(row | {"bytes a question": float(found.bytes.where(asks, 0).mean())})
    return Table.of("modes", f"Right answers by when the cloud is asked, {len(found)} questions", rows)


def _declined(found: pd.DataFrame) -> Table:
    kept = not_sure_from(found)
    when = {"never": math.inf, f"{kept:g} (kept)": kept}
    when["of the other half"] = _of_the_other_half(found, not_sure_from)
    rows: list[Row] = []
    for says, cut in when.items():
        shown = found[found.carried < cut]
        row: Row = {"not sure from": says, "declined": 1 - len(shown) / len(found)}
        rows.append(row | {"right, of those shown": proportion(shown.asked.sum(), len(shown))})
    return Table.of("declined", f"Right answers by what is declined, {len(found)} questions", rows)


EXPERIMENT = Experiment(
    "doubt",
    "From which doubt on a device asks the cloud, and an answer is better not shown",
    measure,
    tables,
    items=items,
    defaults={"prompts": 48},
    together=24,
)


def keep(bundle: Path, **limits: float) -> None:
    """Writes limits of doubt, by their names, into a bundle's manifest."""
    manifest = Manifest.from_json(read_json(bundle / MANIFEST, BundleSchemaError)).to_json()
    write_whole(bundle / MANIFEST, (json.dumps(manifest | limits, indent=1) + "\n").encode())


@dataclass(frozen=True)
class KeepOptions:
    """Write the thresholds of a results folder into a bundle."""

    results: Path = option(None, "folder of `python -m lab run doubt -o FOLDER`", flags=("results",))
    bundle: Path = option(None, "to write into", flags=("bundle",))


def _keep(options: KeepOptions) -> None:
    known, written = sides(list(read_records(options.results / "items" / "doubt.jsonl")))
    keep(options.bundle, ask_from=ask_from(known), not_sure_from=not_sure_from(written))


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("lab.experiments.doubt", _keep, KeepOptions, argv, "", extra="experiments")


if __name__ == "__main__":
    sys.exit(main())
