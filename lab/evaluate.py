"""Evaluation of a shipped pair on held-out problems: `python -m lab.evaluate`.

Responsible for running one phase of the suite, forced decoding with every control, and printing its tables.
Not responsible for the whole set of experiments, resumable and with a report (see `python -m
lab`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table as Shown

from cloud_anchor.errors import CloudError
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from lab.experiments.paper import PHASES, About
from lab.loading import Wanted, about_models, open_lab
from lab.options import add_pair, add_questions, questions
from lab.questions.items import Item
from lab.run import measure
from lab.store import Store
from lab.tables import Answers, Table, show

PHASE = PHASES["fill"]
LEFT_OUT = ("F1 (sets)", "chrF", "exact")
"""Columns that the suite's report has and a terminal has no room for."""


def shown(table: Table) -> Shown:
    """A table for the terminal."""
    columns = [column for column in table.columns if column not in LEFT_OUT]
    found = Shown(title=table.title, caption=table.note)
    for column in columns:
        found.add_column(column)
    for row in table.rows:
        found.add_row(*(show(row.get(column)) for column in columns))
    return found


def evaluate(model: str, edge: str, items: Sequence[Item], seed: int) -> tuple[list[Table], Answers]:
    """The tables of the phase, and the answers that they summarise."""
    wanted = Wanted(model, [edge], None, False, None, None, seed, "cpu", None)
    with tempfile.TemporaryDirectory() as folder:
        lab = open_lab(wanted, Path(folder))
        store = Store(Path(folder), {})
        work = measure(lab, items, [PHASE.name], store)
        for _ in track(work, "prompts", len(items), console=Console(stderr=True)):
            pass
        records = list(store.records(PHASE.name).values())
        about = About.from_json(about_models(lab, wanted))
    failed = [record["error"] for record in records if "error" in record]
    if failed:
        raise CloudError(f"{len(failed)} of {len(items)} prompts failed; the first: {failed[0]}")
    return PHASE.tables(records, about), Answers.of(records)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.evaluate",
        description="Measure a pair on held-out problems, with controls and 95% intervals.",
        epilog="example: python -m lab.evaluate --prompts 200 --json results/tiny.jsonl",
    )
    add_pair(parser)
    add_questions(parser, 200)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write one line of JSON per answer")
    args = parser.parse_args(argv)
    return run_command("evaluate", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    items = questions(args)
    tables, answers = evaluate(args.model, str(bundle_of(args.model, args.edge)), items, args.seed)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text("".join(json.dumps(row) + "\n" for row in answers.rows))
    console = Console(width=None if sys.stdout.isatty() else 220)
    for table in tables:
        console.print(shown(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
