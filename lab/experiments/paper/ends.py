"""Phase `ends`: the end marker (section 3.3): the answer cut at the last anchor, or ended by the edge model.

On: the answer ends at the last anchor. Off: the edge model ends its answer. Known: the payload states the
length, as this project's payloads do where the run has committed it. The same for a prefix of as many tokens,
whose last token carries no information about the end.

The paper's rule asks for a coverage of 40% of an answer whose length is not known yet. By the whole canvas it
hardly ever applies. So the cloud estimates the length from its predictions of end markers: the rule by that
estimate, and the estimate itself as the length that the payload states.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edge_runtime.decode.endings import END_MARKER_COVERAGE
from lab.case import RunCase
from lab.conditions import ORDERS, committed, prefix
from lab.experiment import About, Records, phase
from lab.statistics import share
from lab.tables import Answers, Claim, Column, Figure, Label, Table, compared, less_than, rows, told
from payload import AnchorSet

ON, OFF, KNOWN = "marker on", "marker off", "length known"
RULE, ESTIMATED = "marker by the estimated length", "length estimated"
PREFIX_ON, PREFIX_OFF, PREFIX_KNOWN = (f"prefix, {name}" for name in (ON, OFF, KNOWN))


def without_marker(anchors: AnchorSet) -> AnchorSet:
    """The same anchors on a canvas of which they cover too little for the end-marker rule.

    Without a stated length the rule of the edge applies from a share of the canvas on.
    """
    least = int(len(anchors) / END_MARKER_COVERAGE) + 1
    return replace(anchors, length=None, canvas=max(anchors.canvas, least))


def with_marker(anchors: AnchorSet) -> AnchorSet:
    """The same anchors, with the answer cut behind the last one."""
    return replace(anchors, length=anchors.positions[-1] + 1 if anchors.positions else 0)


def applies(anchors: AnchorSet, size: int) -> bool:
    """Whether the anchors cover more of an answer of `size` tokens than the rule asks for."""
    return len(anchors) > END_MARKER_COVERAGE * size


def by_estimate(anchors: AnchorSet, size: int) -> AnchorSet:
    """The paper's rule, for an answer of an estimated `size`."""
    return with_marker(anchors) if applies(anchors, size) else without_marker(anchors)


def measure(case: RunCase) -> dict[str, Any]:
    found = []
    for order in ORDERS:
        for step in case.lab.steps:
            at = case.situation(order, step)
            if not at.committed or not at.full:
                continue
            size, estimate = len(at.full), at.early.predicted_length
            anchors, first = committed(at), prefix(at)
            forms = {
                ON: with_marker(anchors),
                OFF: without_marker(anchors),
                KNOWN: replace(anchors, length=max(size, anchors.positions[-1] + 1)),
                RULE: by_estimate(anchors, estimate),
                ESTIMATED: replace(anchors, length=max(estimate, anchors.positions[-1] + 1)),
                PREFIX_ON: with_marker(first),
                PREFIX_OFF: without_marker(first),
                PREFIX_KNOWN: replace(first, length=size),
            }
            labels = {
                "order": order,
                "step": step,
                "high": applies(anchors, size),
                "high_by_estimate": applies(anchors, estimate),
                "high_by_canvas": applies(anchors, anchors.canvas),
                "off_by": abs(estimate - size),
            }
            for name, form in forms.items():
                found.append({**labels, "condition": name, **case.score(case.fill(form).ids, at.full)})
    return {"answers": found}


NAMES = (ON, OFF, KNOWN, RULE, ESTIMATED, PREFIX_ON, PREFIX_OFF, PREFIX_KNOWN)


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)

    def f1(name: str) -> Figure:
        return lambda group: group.where(condition=name).cell("f1")

    steps: dict[str, Label] = {"order": "order", "steps": ("step", about.share)}
    coverage: dict[str, Label] = {"coverage": ("high", lambda high: "above 40%" if high else "to 40%")}
    columns: dict[str, Column] = {"N": lambda group: len(group.where(condition=ON))}
    columns |= {name: f1(name) for name in NAMES}
    columns["on less off"] = lambda group: less_than(group.where(condition=OFF), "f1")(
        group.where(condition=ON)
    )
    groups = sorted(
        answers.by(steps | coverage),
        key=lambda each: [each[1].rows[0][name] for name in ("order", "step", "high")],
    )
    note = "F1 against the full run; coverage is of the full answer. The paper: +0.22 where it is above 40%."
    estimates = rows(
        answers.where(condition=ON).by(steps),
        {
            "N": len,
            "estimate off by, tokens": "off_by",
            "applies by the canvas": "high_by_canvas",
            "by the estimate": "high_by_estimate",
            "by the finished answer": "high",
            "the estimate agrees": lambda group: share(
                [float(row["high"] == row["high_by_estimate"]) for row in group.rows]
            ),
        },
    )
    shares = (
        "Shares of the items in which the anchors cover more than 40%. The cloud knows the estimate in time."
    )
    return [
        Table.of("ends", "End marker on and off (section 3.3)", rows(groups, columns), note),
        Table.of("ends-estimate", "Where the end-marker rule applies (section 3.3)", estimates, shares),
    ]


def claims(records: Records, about: About) -> list[Claim]:
    found = []
    for order in ORDERS:
        here = Answers.of(records).where(order=order)

        def at(name: str, here: Answers = here) -> Answers:
            return _first(here.where(high=True)).where(condition=name)

        def estimated(name: str, here: Answers = here) -> Answers:
            return _first(here.where(high_by_estimate=True)).where(condition=name)

        found += [
            compared(
                "Cutting at the last anchor raises F1 where coverage is above 40% (section 3.3: by 0.22).",
                at,
                ON,
                OFF,
                where=about.where(order),
            ),
            compared(
                "The rule raises F1 where it applies by the length that the cloud estimates (section 3.3).",
                estimated,
                RULE,
                OFF,
                why=f"To state the estimated length instead: {told(estimated, ESTIMATED, RULE)}.",
                where=about.where(order),
            ),
        ]
    return found


def _first(answers: Answers) -> Answers:
    """The rows of each item's first step: an item counts once, where its coverage is high first."""
    first: dict[str, int] = {}
    for row in answers.rows:
        first[row["id"]] = min(first.get(row["id"], row["step"]), row["step"])
    return Answers([row for row in answers.rows if row["step"] == first[row["id"]]])


EXPERIMENT = phase("ends", "End marker", measure, tables, claims)
