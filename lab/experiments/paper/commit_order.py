"""Phase `commits` (A): the order in which a run commits its tokens (sections 2.1, 3.1 and 4.6).

Coverage by step, S50, and their correlation with difficulty and length; and two figures for the value of
anchors: the share of them in one leading run, and the share that the edge model predicts without them.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.case import RunCase
from lab.conditions import ORDERS, Situation
from lab.experiment import About, phase
from lab.questions.items import WORD_PROBLEMS
from lab.statistics import Correlation, partial_spearman, spearman
from lab.store import Record
from lab.tables import Answers, Column, Row, Table

PAPER = {
    "S50 and difficulty": "0.182 (p 0.003, N 260)",
    "S50 and length": "0.929",
    "S50 and difficulty, length held fixed": "0.117",
    "S50 and solution steps, word problems": "0.315 (p 0.014)",
}


def measure(case: RunCase) -> Iterator[Record]:
    steps = case.item.steps if case.item.benchmark in WORD_PROBLEMS else None
    for order in ORDERS:
        run = case.runs[order]
        row = {"table": "runs", "order": order, "s50": run.full.s50, "length": len(run.answer)}
        yield row | {"level": case.item.level, "steps": steps, "reversals": run.reversals}
        for step in case.lab.steps:
            at = case.situation(order, step)
            yield {"table": "commits", "order": order, "step": step} | _anchors(case, at)


def _anchors(case: RunCase, at: Situation) -> Record:
    size = len(at.full)
    places = sorted(p for p in at.committed if p < size)
    leading = next((i for i, p in enumerate(places) if i != p), len(places))
    return {
        "anchors": len(places),
        "coverage": len(places) / size if size else 1.0,
        "leading": leading / len(places) if places else None,
        "own": case.own(at.full, places),
        "own_prefix": case.own(at.full, range(len(places))),
        "own_all": case.own(at.full, range(size)),
    }


def correlations(runs: Answers) -> dict[str, Correlation]:
    """The correlations of section 4.6, each over the answers that have all of its figures."""

    def rho(*names: str) -> Correlation:
        known = [row for row in runs.rows if all(row[name] is not None for name in names)]
        columns = [[float(row[name]) for row in known] for name in names]
        return spearman(*columns) if len(columns) == 2 else partial_spearman(*columns)

    return {
        "S50 and difficulty": rho("s50", "level"),
        "S50 and length": rho("s50", "length"),
        "S50 and difficulty, length held fixed": rho("s50", "level", "length"),
        "S50 and solution steps, word problems": rho("s50", "steps"),
        "S50 and solution steps, length held fixed": rho("s50", "steps", "length"),
    }


def tables(answers: Answers, about: About) -> Iterator[Table]:
    runs = answers.where(table="runs")
    columns: dict[str, Column] = {
        "N": len,
        "anchors": "anchors",
        "coverage": "coverage",
        "share in the leading run": "leading",
        "the edge's own": "own",
        "the edge's own, prefix of as many": "own_prefix",
        "the edge's own, all tokens": "own_all",
    }
    note = (
        "Coverage: share of the full answer's tokens that are committed. The edge's own: share of the tokens "
        "that the edge model predicts, given all that stands before; sending these changes nothing. "
        f"{int(sum(runs.values('reversals')))} committed tokens changed or were masked again in {len(runs)} "
        "runs, by the canvases that the model was shown (section 2.1: none can)."
    )
    labels = {name: about.by_step[name] for name in ("order", "steps")}
    yield answers.where(table="commits").table("commits", "A: commits by step", labels, columns, note)
    found: list[Row] = [
        {"order": order, "Spearman's rho of": name, "rho": rho, "paper": PAPER.get(name)}
        for (order,), group in runs.groups("order")
        for name, rho in correlations(group).items()
    ]
    s50 = (
        "S50: the first step after which half of the answer's tokens are committed. None: a constant sample."
    )
    yield Table.of("difficulty", "A: S50, difficulty and length (section 4.6)", found, s50)


EXPERIMENT = phase("commits", "A: commit curves", measure, tables)
