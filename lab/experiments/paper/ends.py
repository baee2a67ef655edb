"""Phase `ends`: the end marker (section 3.3): the answer cut at the last anchor, or ended by the edge model.

On: the answer ends at the last anchor. Off: the edge model ends its answer. Known: the payload states the
length, as this project's payloads do where the run has committed it. The same for a prefix of as many tokens,
whose last token carries no information about the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edge_runtime.decode.endings import END_MARKER_COVERAGE
from lab.case import RunCase
from lab.conditions import ORDERS, committed, prefix
from lab.experiment import About, Records, phase
from lab.tables import Answers, Label, Table, against, rows
from payload import AnchorSet

OFF = "marker off"


def without_marker(anchors: AnchorSet) -> AnchorSet:
    """The same anchors on a canvas of which they cover too little for the end-marker rule.

    Without a stated length the rule of the edge applies from a share of the canvas on.
    """
    least = int(len(anchors) / END_MARKER_COVERAGE) + 1
    return replace(anchors, length=None, canvas=max(anchors.canvas, least))


def with_marker(anchors: AnchorSet) -> AnchorSet:
    """The same anchors, with the answer cut behind the last one."""
    return replace(anchors, length=anchors.positions[-1] + 1 if anchors.positions else 0)


def measure(case: RunCase) -> dict[str, Any]:
    found = []
    for order in ORDERS:
        for step in case.lab.steps:
            at = case.situation(order, step)
            if not at.committed or not at.full:
                continue
            size, anchors, first = len(at.full), committed(at), prefix(at)
            forms = {
                OFF: without_marker(anchors),
                "marker on": with_marker(anchors),
                "length known": replace(anchors, length=max(size, anchors.positions[-1] + 1)),
                "prefix, marker off": without_marker(first),
                "prefix, marker on": with_marker(first),
                "prefix, length known": replace(first, length=size),
            }
            labels = {"order": order, "step": step, "high": len(anchors) > END_MARKER_COVERAGE * size}
            for name, form in forms.items():
                found.append({**labels, "condition": name, **case.score(case.fill(form).ids, at.full)})
    return {"answers": found}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    labels: dict[str, Label] = {
        "order": "order",
        "steps": ("step", about.share),
        "coverage": ("high", lambda high: "above 40%" if high else "to 40%"),
        "answer": "condition",
    }
    less_off = against(answers, "f1", "order", "step", "high", condition=OFF)
    found = rows(answers.by(labels), {"N": len, "F1": "f1", "F1 less marker off": less_off})
    note = "F1 against the full run; coverage is of the full answer. The paper: +0.22 where it is above 40%."
    return [Table.of("ends", "End marker on and off (section 3.3)", found, note)]


EXPERIMENT = phase("ends", "End marker", measure, tables)
