"""Experiment `teaching`: the curves of runs of `python -m lab distil`, beside one another.

Responsible for one table of several runs at the same steps. Not responsible for the runs (see `command`) or
for measuring with more questions (see `lab.experiments.few_passes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD
from common.cli import option
from common.files import read_records
from lab.experiment import About, Experiment, Models, Records, Setup
from lab.pairs.card import CURVE
from lab.store import Record
from lab.tables import Row, Table


@dataclass(frozen=True)
class TeachingOptions:
    runs: tuple[str, ...] = option((), "folders of runs, each as NAME=FOLDER", metavar="RUN")


def items(setup: Setup) -> list[str]:
    """The runs; raises RequestError without any, and for one that is not NAME=FOLDER."""
    own: TeachingOptions = setup.own
    if not own.runs or not all(all(run.partition("=")[::2]) for run in own.runs):
        raise RequestError(f"--runs: expected NAME=FOLDER ..., found {' '.join(own.runs) or 'none'}")
    return list(own.runs)


def measure(setup: Setup, items: Sequence[str]) -> Iterator[Record]:
    """The points of each run's curve at the usual probability; raises RequestError where there are none."""
    for run in items:
        file = Path(run.partition("=")[2]) / CURVE
        if not (rows := read_records(file)):
            raise RequestError(f"{file}: expected the curve of a run of `lab distil`, found none")
        yield {"points": [row for row in rows if row["commit"] == PARALLEL_THRESHOLD]}


def tables(records: Records, about: About) -> list[Table]:
    rows: list[Row] = [
        {"run": str(record["id"]).partition("=")[0]}
        | {name: point[name] for name in point if name != "commit"}
        for record in records
        for point in record["points"]
    ]
    note = "Held-out questions with long answers; F1 is against the same run's finished answer."
    return [
        Table.of("curves", f"Tokens committed from {PARALLEL_THRESHOLD} on, by training steps", rows, note)
    ]


EXPERIMENT = Experiment(
    "teaching",
    "Curves of models taught for few passes",
    measure,
    tables,
    options=TeachingOptions,
    items=items,
    models=Models.NONE,
)
