"""Phase `ends`: the end marker (section 3.3): the answer cut at the last anchor, or ended by the edge model.

On: the answer ends at the last anchor. Off: the edge model ends its answer. Known: the payload states the
length. The same for a prefix of as many tokens, whose last token carries no information about the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edge_runtime.decode.endings import END_MARKER_COVERAGE
from lab.case import RunCase
from lab.conditions import committed, prefix
from lab.experiment import About, phase
from lab.store import Record
from lab.tables import Answers, Column, Table, against
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


def measure(case: RunCase) -> Iterator[Record]:
    for order, step in case.steps:
        at = case.situation(order, step)
        if not at.committed or not at.full:
            continue
        size = len(at.full)
        labels = {"order": order, "step": step, "high": len(committed(at)) > END_MARKER_COVERAGE * size}
        for name, anchors in (("", committed(at)), ("prefix, ", prefix(at))):
            known = replace(anchors, length=max(size, anchors.positions[-1] + 1))
            forms = {OFF: without_marker(anchors), "marker on": with_marker(anchors), "length known": known}
            for form, told in forms.items():
                yield labels | {"condition": name + form} | case.score(case.fill(told).ids, at.full)


def tables(answers: Answers, about: About) -> Iterator[Table]:
    labels = {name: about.by_step[name] for name in ("order", "steps")}
    labels |= {"coverage": ("high", lambda high: "above 40%" if high else "to 40%"), "answer": "condition"}
    less_off = against(answers, "f1", "order", "step", "high", condition=OFF)
    columns: dict[str, Column] = {"N": len, "F1": "f1", "F1 less marker off": less_off}
    note = "F1 against the full run; coverage is of the full answer. The paper: +0.22 where it is above 40%."
    yield answers.table("ends", "End marker on and off (section 3.3)", labels, columns, note)


EXPERIMENT = phase("ends", "End marker", measure, tables)
