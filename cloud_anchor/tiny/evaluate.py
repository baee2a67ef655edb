"""Measure the shipped pair on held-out problems: `python -m cloud_anchor.tiny.evaluate`.

For each problem: the full diffusion run, the edge model alone, and at each fraction of the steps every
condition of `conditions`. Printed with 95% bootstrap intervals, whatever they say. Knows how problems are run
and tables printed; what is sent is `conditions`' business, what is right is `check`'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cloud_anchor.denoised import Denoised
from cloud_anchor.errors import CloudError
from cloud_anchor.metrics import bootstrap, word_f1
from cloud_anchor.readers import EngineReader
from cloud_anchor.sampler import denoise_steps, steps_for
from cloud_anchor.tiny.check import is_right
from cloud_anchor.tiny.conditions import CONDITIONS, ORDERS, Situation, plan
from cloud_anchor.tiny.families import FAMILIES, KNOWLEDGE, held_out_problems
from cloud_anchor.tiny.pair import FULL_RUN, Pair
from cloud_anchor.tiny.problem import Problem
from edge_runtime.errors import EdgeError
from payload import AnchorSet, encode

FRACTIONS = (0.1, 0.15, 0.25)
BATCH = 20

FULL, ALONE, BARE = "full run", "edge alone", "anchors alone"


@dataclass(frozen=True)
class Item:
    """One answer under one condition.

    f1: word F1 against the full run of the same order. sent: tokens in the payload; bytes: its size with the
    prompt known to both sides. passes: forward passes of the edge model on the device.
    """

    index: int
    family: str
    difficulty: str
    order: str
    fraction: float
    condition: str
    sent: int
    bytes: int
    passes: int
    tokens: int
    f1: float
    right: bool


def _answers(
    pair: Pair, prompts: Sequence[list[int]], order: str, stops: Sequence[int]
) -> list[list[Denoised]]:
    """For each prompt its run stopped at each of `stops` steps and, last, finished."""
    config = plan(order, FULL_RUN)
    rows: list[list[Denoised]] = [[] for _ in prompts]
    for state in denoise_steps(pair.dream, prompts, config):
        step = state.steps[0]
        if step in stops:
            for row, run in zip(rows, state.results(pair.dream, config), strict=True):
                row.append(run)
    for row, run in zip(rows, state.results(pair.dream, config), strict=True):
        row.append(run)
    return rows


def evaluate(pair: Pair, problems: Sequence[Problem], progress: Progress | None = None) -> list[Item]:
    """Every condition of every problem."""
    items: list[Item] = []
    stops = [steps_for(f, FULL_RUN.total_steps) for f in FRACTIONS]
    reader = EngineReader(pair.edge.engine, pair.form.contract.eos_ids)
    bar = progress.add_task("prompts", total=len(problems) * len(ORDERS)) if progress else None
    for order in ORDERS:
        for begin in range(0, len(problems), BATCH):
            group = problems[begin : begin + BATCH]
            prompts = [pair.form.ids(p.prompt) for p in group]
            for offset, runs in enumerate(_answers(pair, prompts, order, stops)):
                judge = _Judge(pair, group[offset], begin + offset, order, prompts[offset], runs[-1].answer)
                items.append(judge.full())
                if order == "confidence":
                    items.append(
                        judge.filled(0.0, ALONE, AnchorSet((), (), FULL_RUN.canvas, pair.form.contract))
                    )
                for fraction, run in zip(FRACTIONS, runs, strict=False):
                    at = Situation(run, runs[-1].answer, pair.form.contract, reader, seed=begin + offset)
                    for name, select in CONDITIONS.items():
                        anchors = select(at)
                        items.append(judge.filled(fraction, name, anchors))
                        if name == "anchors, forced decoding":
                            items.append(judge.bare(fraction, anchors))
                if progress and bar is not None:
                    progress.advance(bar)
    return items


@dataclass(frozen=True)
class _Judge:
    """Measures the answers to one problem against one full run."""

    pair: Pair
    problem: Problem
    index: int
    order: str
    prompt_ids: list[int]
    reference: list[int]

    def _item(
        self, fraction: float, condition: str, ids: list[int], sent: int, size: int, passes: int
    ) -> Item:
        text = self.pair.text(ids)
        return Item(
            self.index,
            self.problem.family,
            self.problem.difficulty,
            self.order,
            fraction,
            condition,
            sent,
            size,
            passes,
            len(ids),
            word_f1(text, self.pair.text(self.reference)),
            is_right(self.problem, text),
        )

    def full(self) -> Item:
        return self._item(1.0, FULL, self.reference, 0, 0, 0)

    def bare(self, fraction: float, anchors: AnchorSet) -> Item:
        """The anchors' own text, nothing filled in."""
        size = self._bytes(anchors)
        return self._item(fraction, BARE, list(anchors.ids), len(anchors), size, 0)

    def filled(self, fraction: float, condition: str, anchors: AnchorSet) -> Item:
        tokens, stats = self.pair.fill(self.prompt_ids, anchors)
        ids = [t.id for t in tokens]
        size = self._bytes(anchors) if condition != ALONE else 0
        return self._item(fraction, condition, ids, len(anchors), size, stats.passes)

    def _bytes(self, anchors: AnchorSet) -> int:
        bare = replace(anchors, step=0, total_steps=0)  # where it was taken is not needed to fill it
        return len(encode(bare, "compact", prompt_ids=self.prompt_ids))


def _cell(values: Iterable[float], digits: int = 2) -> str:
    estimate = bootstrap(list(values))
    return f"{estimate.mean:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def families_table(items: Sequence[Item]) -> Table:
    """Share of right answers by family: the full runs and the edge model alone."""
    table = Table(title="Right answers by family, mean [95% interval]")
    for column in ("family", "n", *(f"full run, {order}" for order in ORDERS), ALONE):
        table.add_column(column, justify="left" if column == "family" else "right")
    for family in [*FAMILIES, "all"]:
        chosen = [i for i in items if family in (i.family, "all")]
        full = {
            order: [i.right for i in chosen if i.condition == FULL and i.order == order] for order in ORDERS
        }
        alone = [i.right for i in chosen if i.condition == ALONE]
        marked = f"{family} *" if family in KNOWLEDGE else family
        table.add_row(marked, str(len(alone)), *(_cell(full[order]) for order in ORDERS), _cell(alone))
    table.caption = "* families of knowledge: the edge model was taught the language, not the facts"
    return table


def conditions_table(items: Sequence[Item], order: str) -> Table:
    """Every condition at every fraction, F1 against the full run of this order."""
    title = f"Order: {order}; F1 against the full run of {FULL_RUN.total_steps} steps, mean [95% interval]"
    table = Table(title=title)
    for column in ("steps", "condition", "F1", "right", "tokens sent", "bytes", "edge passes", "tokens"):
        table.add_column(column, justify="left" if column == "condition" else "right")
    groups: dict[tuple[float, str], list[Item]] = defaultdict(list)
    for item in items:
        if item.order == order or item.condition == ALONE:
            groups[item.fraction, item.condition].append(item)
    reference = {i.index: i for i in groups[1.0, FULL]}
    for (fraction, condition), group in sorted(groups.items(), key=lambda kv: (kv[0][0], -_mean_f1(kv[1]))):
        n = len(group)
        table.add_row(
            f"{fraction:.0%}",
            condition,
            _cell(i.f1 for i in group),
            _cell(float(i.right) for i in group),
            f"{sum(i.sent for i in group) / n:.1f}",
            f"{sum(i.bytes for i in group) / n:.1f}",
            f"{sum(i.passes for i in group) / n:.1f}",
            f"{sum(i.tokens for i in group) / n:.1f}",
        )
    mean_length = sum(i.tokens for i in reference.values()) / max(len(reference), 1)
    table.caption = f"{len(reference)} held-out prompts, full answers of {mean_length:.1f} tokens"
    return table


def _mean_f1(group: Sequence[Item]) -> float:
    return sum(i.f1 for i in group) / len(group)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.tiny.evaluate",
        description="Measure the tiny pair on held-out problems, with controls and 95% intervals.",
        epilog="example: python -m cloud_anchor.tiny.evaluate --prompts 200 --json results/tiny.jsonl",
    )
    parser.add_argument(
        "--prompts", type=int, default=200, help="held-out problems, families in turn (default 200)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which problems")
    parser.add_argument(
        "--model", default="tiny", help="diffusion checkpoint folder (default: the shipped one)"
    )
    parser.add_argument("--edge", type=Path, help="edge bundle folder (default: the shipped one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every item as a line of JSON")
    args = parser.parse_args(argv)
    if args.prompts < 1:
        parser.error(f"--prompts: expected at least 1, found {args.prompts}")
    try:
        pair = Pair.load(args.model, **({"bundle": args.edge} if args.edge else {}))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            items = evaluate(pair, held_out_problems(args.prompts, args.seed), progress)
    except (CloudError, EdgeError) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text("".join(json.dumps(asdict(item)) + "\n" for item in items))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(families_table(items))
    for order in ORDERS:
        console.print(conditions_table(items, order))
    return 0


if __name__ == "__main__":
    sys.exit(main())
