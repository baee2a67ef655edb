"""Phase `fill` (B): forced decoding at every fraction, with every control (Table 2, Figure 2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from lab.case import RunCase
from lab.conditions import (
    ALONE,
    ANCHORS,
    BARE,
    CLAIMED_THRESHOLD,
    CONDITIONS,
    DRAFT,
    FULL,
    LEADING,
    ORDERS,
    PARALLEL_CONDITIONS,
    PARALLEL_DRAFT,
    PREFIX,
    PRODUCT,
    SCATTERED,
    aware,
)
from lab.experiment import About, Records, phase
from lab.plots import MARKERS, Picture, means, png
from lab.statistics import proportion
from lab.tables import (
    MEASURES_NOTE,
    METRICS,
    Answers,
    Claim,
    Column,
    Figure,
    Groups,
    Row,
    Table,
    compare,
    compared,
    metric_columns,
    rows,
    told,
    verdict,
)

LAST = [*ORDERS][-1]
"""The order by confidence, which also has a run with parallel commits."""

KEPT_LOW = 0.879
"""Lower end of the paper's interval of the share of right answers kept: 87 of 92 (section 4.2)."""

CLAIMED = aware(CLAIMED_THRESHOLD)
"""The edge-aware selection of quota runs in claims: fixed before the measurements, not the best one."""


def measure(case: RunCase) -> dict[str, Any]:
    found = []
    for order in ORDERS:
        found += case.reference(order)
        for step in case.lab.steps:
            found += [case.answer(order, step, name, how) for name, how in CONDITIONS.items()]
    for step in case.lab.steps:
        found += [case.answer(LAST, step, name, how) for name, how in PARALLEL_CONDITIONS.items()]
    return {"answers": found}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    found = [_conditions(answers.where(order=order), order, about) for order in ORDERS]
    return [_headline(answers, about), _families(answers, about), _kept(answers, about), *found]


def _headline(answers: Answers, about: About) -> Table:
    """Both orders side by side at the paper's first fraction."""
    found: list[Row] = []
    step = about.paper_steps[0]
    for name in (ALONE, *CONDITIONS, *PARALLEL_CONDITIONS, FULL):
        row: Row = {"condition": name}
        for order in ORDERS:
            group = at(answers, order, step, name)
            if not group:
                continue
            row["N"] = len(group)
            for column in ("F1", "right", "bytes", "passes"):
                row[f"{column}, {order}"] = group.cell(METRICS[column])
        found.append(row)
    title = f"What an anchor buys: every condition after {about.share(step)} steps"
    return Table.of("headline", title, found, MEASURES_NOTE)


def _conditions(answers: Answers, order: str, about: About) -> Table:
    groups = answers.by({"steps": ("step", about.share), "condition": "condition"})
    by_step = sorted(groups, key=lambda each: each[1].rows[0]["step"])
    title = f"B: Table 2 and its controls, order of commits by {order}"
    columns = ("steps", "condition", "N", *METRICS)
    return Table(f"fill-{order}", title, columns, rows(by_step, metric_columns()), MEASURES_NOTE)


def _families(answers: Answers, about: About) -> Table:
    """Right answers by benchmark: the full runs, and the conditions after few steps."""
    step = about.paper_steps[0]

    def right(order: str, name: str) -> Figure:
        return lambda group: at(group, order, step, name).cell("right")

    columns: dict[str, Column] = {"N": lambda group: len(at(group, LAST, step, ALONE))}
    columns |= {f"full run, {order}": right(order, FULL) for order in ORDERS}
    shown = (ALONE, ANCHORS, PREFIX, DRAFT, CLAIMED, PARALLEL_DRAFT, PRODUCT)
    columns |= {name: right(LAST, name) for name in shown}
    groups: Groups = [*answers.by({"benchmark": "benchmark"}), ({"benchmark": "all"}, answers)]
    note = f"But for the full runs: after {about.share(step)} steps, order of commits by {LAST}."
    return Table.of("right", "B: right answers by benchmark", rows(groups, columns), note)


def _kept(answers: Answers, about: About) -> Table:
    """Share of the full run's right answers that a condition keeps, with Wilson intervals (section 4.2)."""
    found: list[Row] = []
    for order in ORDERS:
        right = {row["id"] for row in at(answers, order, 0, FULL).rows if row["right"]}
        for step in about.paper_steps:
            row: Row = {"order": order, "steps": about.share(step), "right in the full run": len(right)}
            for name in (ALONE, ANCHORS, PREFIX, DRAFT, CLAIMED):
                kept = [r for r in at(answers, order, step, name).rows if r["id"] in right]
                row[name] = proportion(sum(bool(r["right"]) for r in kept), len(kept))
            found.append(row)
    note = "Cells: share ± deviation of one answer [95% Wilson interval]. The paper at 25%: 87 of 92, 0.946."
    return Table.of("kept", "B: right answers of the full run that are kept (section 4.2)", found, note)


def at(answers: Answers, order: str, step: int, condition: str) -> Answers:
    """The rows of one condition. Conditions without anchors have the same rows at every step."""
    free = condition in (ALONE, FULL)
    return answers.where(order=order, condition=condition, **({} if free else {"step": step}))


STATEMENTS: tuple[tuple[str, str, str, str], ...] = (
    ("Anchors raise the edge model's F1 over its own (Table 2).", ANCHORS, ALONE, "f1"),
    ("Anchors raise the edge model's accuracy over its own (Table 2).", ANCHORS, ALONE, "right"),
    ("Control: anchors are worth more than a prefix of as many tokens.", ANCHORS, PREFIX, "f1"),
    ("Control: anchors give more right answers than a prefix of as many tokens.", ANCHORS, PREFIX, "right"),
    ("Control: anchors are worth more than their own leading run.", ANCHORS, LEADING, "f1"),
    ("Control: anchors are worth more than as many tokens at random.", ANCHORS, SCATTERED, "f1"),
    ("The edge model is needed to turn anchors into text (section 3.2).", ANCHORS, BARE, "f1"),
    (
        "The pipeline is not equivalent to stopping the diffusion model early (section 3.2): anchors, "
        "filled, beat its current predictions as they stand.",
        ANCHORS,
        DRAFT,
        "f1",
    ),
    ("This project's selection beats the paper's anchors.", CLAIMED, ANCHORS, "f1"),
    (
        "This project's selection gives more right answers than the paper's anchors.",
        CLAIMED,
        ANCHORS,
        "right",
    ),
    ("This project's selection beats a prefix of as many tokens as the anchors.", CLAIMED, PREFIX, "f1"),
    ("This project's selection gives more right answers than that prefix.", CLAIMED, PREFIX, "right"),
)
"""Statements decided by comparing two conditions: statement, first, second, measure."""

PARALLEL_STATEMENTS: tuple[tuple[str, str, str, str], ...] = (
    ("With parallel commits this project's selection beats the paper's anchors.", PRODUCT, ANCHORS, "f1"),
    (
        "With parallel commits it gives more right answers than the paper's anchors.",
        PRODUCT,
        ANCHORS,
        "right",
    ),
    ("Parallel commits give it more right answers than a quota a step.", PRODUCT, CLAIMED, "right"),
    ("Filling gives more right answers than showing every prediction.", PRODUCT, PARALLEL_DRAFT, "right"),
)


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    found = []
    for order in ORDERS:
        step = about.paper_steps[0]
        of = partial(at, answers, order, step)
        for paper, first, second, metric in STATEMENTS + (PARALLEL_STATEMENTS if order == LAST else ()):
            why = ""
            if second == ALONE:  # the prefix against the same control
                why = told(of, PREFIX, ALONE, metric) + "."
            elif first in (CLAIMED, PRODUCT):
                sizes = (of(name).values("bytes") for name in (first, second))
                why = "Bytes: " + " against ".join(f"{sum(s) / max(len(s), 1):.1f}" for s in sizes) + "."
            where = about.where(order, step)
            found.append(compared(paper, of, first, second, metric, why=why, where=where))
        found.append(_preserved(answers, order, about))
    return found


def _preserved(answers: Answers, order: str, about: About) -> Claim:
    """Share of the full run's right answers that is kept (section 4.2), at the paper's second fraction."""
    step = about.paper_steps[-1]
    right = {row["id"] for row in at(answers, order, step, FULL).rows if row["right"]}

    def kept(name: str) -> Answers:
        return Answers([row for row in at(answers, order, step, name).rows if row["id"] in right])

    mine = kept(ANCHORS)
    cell = proportion(sum(map(int, mine.values("right"))), len(mine))
    sentence, _ = compare(ANCHORS, kept(ANCHORS), PREFIX, kept(PREFIX), "right")
    text = "The full run has no right answer here."
    if cell:
        text = f"{cell.mean:.1%} [{cell.low:.1%}, {cell.high:.1%}] of {cell.n} are kept (Wilson interval)."
    return Claim(
        "The pipeline keeps 94.6% [87.9%, 98.0%] of the full run's right answers (section 4.2).",
        verdict(bool(cell and cell.low >= KEPT_LOW), bool(cell and cell.high < KEPT_LOW), len(right)),
        text,
        f"{sentence}.",
        about.where(order, step),
    )


def plots(records: Records, about: About) -> Iterator[Picture]:
    answers = Answers.of(records)
    for order in ORDERS:
        title = f"Frontier, order of commits by {order}: every condition at {len(about.steps)} fractions"
        yield Picture(f"fill-{order}", title, _frontier(answers.where(order=order)))


def _frontier(answers: Answers) -> bytes:
    """Agreement and right answers against steps, bytes and passes, of five that matter most."""

    def draw(figure: Any) -> None:
        grid = figure.subplots(2, 3, sharey="row")
        across = (
            ("step", "diffusion steps"),
            ("bytes", "payload bytes"),
            ("passes", "passes of the edge model"),
        )
        measures = (("f1", "agreement with the full run"), ("right", "right answers"))
        for row, (metric, says) in enumerate(measures):
            for axes, (field, label) in zip(grid[row], across, strict=True):
                for index, name in enumerate((PRODUCT, ANCHORS, PREFIX, ALONE, FULL)):
                    points = means(answers.where(condition=name), "step", field, metric)
                    if not points:
                        continue
                    style = {"marker": MARKERS[index], "color": f"C{index}", "markersize": 4}
                    if name in (ALONE, FULL):
                        axes.axhline(points[0][1], linestyle=":", color="black", linewidth=0.8)
                        axes.annotate(
                            name,
                            (0.99, points[0][1]),
                            xycoords=("axes fraction", "data"),
                            ha="right",
                            fontsize=7,
                        )
                        continue
                    xs, ys = zip(*points, strict=True)
                    axes.plot(xs, ys, linewidth=0.9, label=name, **style)
                axes.set(xlabel=label)
            grid[row][0].set_ylabel(says)
        figure.legend(
            *grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
        )

    return png(draw, (13, 8.5))


EXPERIMENT = phase("fill", "B: forced decoding with controls", measure, tables, claims, plots=plots)
