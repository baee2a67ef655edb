"""Phase B: forced decoding at every fraction, with every control (Table 2, Figure 2)."""

from __future__ import annotations

from typing import Any

from cloud_anchor.suite.conditions import (
    ALONE,
    ANCHORS,
    BARE,
    CONDITIONS,
    DRAFT,
    FULL,
    LEADING,
    ORDERS,
    PREFIX,
    SCATTERED,
    aware,
)
from cloud_anchor.suite.lab import Case
from cloud_anchor.suite.phases.base import About, Phase, Records
from cloud_anchor.suite.tables import (
    MEASURES_NOTE,
    METRICS,
    Answers,
    Claim,
    Row,
    Table,
    compare,
    metric_cells,
    verdict,
)

PRODUCT = aware(0.5)
"""The edge-aware selection that claims are made of: fixed before looking, not the best in the table."""


def measure(case: Case) -> dict[str, Any]:
    rows = []
    for order in ORDERS:
        rows += case.reference(order)
        for step in case.lab.steps:
            rows += [case.answer(order, step, name, how) for name, how in CONDITIONS.items()]
    return {"answers": rows}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    found = [_conditions(answers.where(order=order), order, about) for order in ORDERS]
    return [_families(answers), *found]


def _conditions(answers: Answers, order: str, about: About) -> Table:
    rows: list[Row] = []
    for (step, condition), group in sorted(answers.groups("step", "condition"), key=lambda each: each[0][0]):
        rows.append({"steps": about.share(step), "condition": condition, **metric_cells(group)})
    title = f"B: Table 2 and its controls, order of commits by {order}"
    return Table(f"fill-{order}", title, ("steps", "condition", "N", *METRICS), rows, MEASURES_NOTE)


def _families(answers: Answers) -> Table:
    """Right answers by benchmark: the full runs and the edge alone."""
    rows: list[Row] = []
    alone = answers.where(condition=ALONE, order=next(iter(ORDERS)))
    for benchmark in [*dict.fromkeys(row["benchmark"] for row in answers.rows), "all"]:
        only = {} if benchmark == "all" else {"benchmark": benchmark}
        row: Row = {"benchmark": benchmark, "N": len(alone.where(**only))}
        for order in ORDERS:
            row[f"full run, {order}"] = answers.where(condition=FULL, order=order, **only).cell("right")
        row[ALONE] = alone.where(**only).cell("right")
        rows.append(row)
    columns = ("benchmark", "N", *(f"full run, {order}" for order in ORDERS), ALONE)
    return Table("right", "B: right answers by benchmark", columns, rows)


def at(answers: Answers, order: str, step: int, condition: str) -> Answers:
    """The rows of one condition; those without anchors have no step."""
    free = condition in (ALONE, FULL)
    return answers.where(order=order, condition=condition, **({} if free else {"step": step}))


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    found = []
    step = about.paper_steps[0]
    for order in ORDERS:

        def rows(condition: str, order: str = order) -> Answers:
            return at(answers, order, step, condition)

        def versus(paper: str, first: str, second: str, metric: str = "f1", order: str = order) -> Claim:
            sentence, found = compare(
                first, at(answers, order, step, first), second, at(answers, order, step, second), metric
            )
            return Claim(
                f"{paper} ({order} order, {about.share(step)} of the steps)",
                verdict(found == "higher", found == "lower"),
                sentence + ".",
            )

        found += [
            versus("Anchors raise the edge model's F1 over its own (Table 2).", ANCHORS, ALONE),
            versus(
                "Anchors raise the edge model's accuracy over its own (Table 2).", ANCHORS, ALONE, "right"
            ),
            versus("Control: anchors are worth more than a prefix of as many tokens.", ANCHORS, PREFIX),
            versus("Control: anchors are worth more than their own leading run.", ANCHORS, LEADING),
            versus("Control: anchors are worth more than as many tokens at random.", ANCHORS, SCATTERED),
            versus("The edge model is needed to turn anchors into text (section 3.2).", ANCHORS, BARE),
            versus(
                "Stopping the diffusion model early is not a substitute (section 3.2): anchors filled beat "
                "every "
                "current prediction as it stands.",
                ANCHORS,
                DRAFT,
            ),
            versus("This project's selection beats the paper's anchors.", PRODUCT, ANCHORS),
            versus(
                "This project's selection beats a prefix of as many tokens as the anchors.", PRODUCT, PREFIX
            ),
            versus(
                "This project's selection gives more right answers than the paper's anchors.",
                PRODUCT,
                ANCHORS,
                "right",
            ),
        ]
        found.append(_preserved(rows(ANCHORS), rows(FULL), order, about, step))
    return found


def _preserved(anchors: Answers, full: Answers, order: str, about: About, step: int) -> Claim:
    """How many of the full run's right answers survive (section 4.2)."""
    before = {row["id"]: row["right"] for row in full.rows}
    kept = [row["right"] for row in anchors.rows if before.get(row["id"])]
    cell = Answers([{"kept": value} for value in kept]).cell("kept")
    text = "The full run has no right answer here."
    if cell:
        text = f"{sum(kept):.0f} of {len(kept)} are kept: {cell.mean:.2f} [{cell.low:.2f}, {cell.high:.2f}]."
    return Claim(
        "The pipeline keeps 94.6% of the full run's right answers (section 4.2 says so of 25% of the steps; "
        "here "
        f"{order} order, {about.share(step)})",
        verdict(
            bool(cell and cell.low <= 0.946 <= cell.high) or bool(cell and cell.low > 0.946),
            bool(cell and cell.high < 0.946),
        ),
        text,
    )


PHASE = Phase("fill", "B: forced decoding with controls", measure, tables, claims)
