"""Phase `ends`: the end marker (section 3.3): the answer cut at the last anchor, or ended by the edge model.

On: the answer ends at the last anchor. Off: the edge model ends its answer. Known: the payload states the
length, as this project's payloads do where the run has committed it. The same for a prefix of as many tokens,
whose last token carries no information about the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloud_anchor.suite.conditions import ORDERS, committed, prefix
from cloud_anchor.suite.lab import Case
from cloud_anchor.suite.phases.phase import About, Phase, Records
from cloud_anchor.suite.tables import Answers, Claim, Row, Table, compare, more
from edge_runtime.decode.endings import END_MARKER_COVERAGE
from payload import AnchorSet

ON, OFF, KNOWN = "marker on", "marker off", "length known"
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


def measure(case: Case) -> dict[str, Any]:
    rows = []
    for order in ORDERS:
        for step in case.lab.steps:
            at = case.situation(order, step)
            if not at.committed or not at.full:
                continue
            size = len(at.full)
            anchors, first = committed(at), prefix(at)
            forms = {
                ON: with_marker(anchors),
                OFF: without_marker(anchors),
                KNOWN: replace(anchors, length=max(size, anchors.positions[-1] + 1)),
                PREFIX_ON: with_marker(first),
                PREFIX_OFF: without_marker(first),
                PREFIX_KNOWN: replace(first, length=size),
            }
            high = len(anchors) / size > END_MARKER_COVERAGE
            for name, form in forms.items():
                score = case.score(case.fill(form).ids, at.full)
                rows.append({"order": order, "step": step, "condition": name, "high": high, **score})
    return {"answers": rows}


def tables(records: Records, about: About) -> list[Table]:
    rows: list[Row] = []
    for (order, step, high), group in sorted(
        Answers.of(records).groups("order", "step", "high"), key=lambda g: g[0]
    ):
        row: Row = {"order": order, "steps": about.share(step), "coverage": "above 40%" if high else "to 40%"}
        row["N"] = len(group.where(condition=ON))
        for name in (ON, OFF, KNOWN, PREFIX_ON, PREFIX_OFF, PREFIX_KNOWN):
            row[name] = group.where(condition=name).cell("f1")
        found = group.where(condition=ON).less(group.where(condition=OFF), "f1")
        row["on less off"] = found.summary if found else None
        rows.append(row)
    note = "F1 against the full run; coverage is of the full answer. The paper: +0.22 where it is above 40%."
    return [Table("ends", "End marker on and off (section 3.3)", tuple(rows[0]) if rows else (), rows, note)]


def claims(records: Records, about: About) -> list[Claim]:
    found = []
    for order in ORDERS:
        rows = Answers.of(records).where(order=order, high=True)
        # An item counts once: at the first step at which its coverage is high.
        first: dict[str, int] = {}
        for row in rows.rows:
            first[row["id"]] = min(first.get(row["id"], row["step"]), row["step"])
        rows = Answers([row for row in rows.rows if row["step"] == first[row["id"]]])
        sentence, result = compare(ON, rows.where(condition=ON), OFF, rows.where(condition=OFF))
        found.append(
            Claim(
                "Cutting at the last anchor raises F1 where coverage is above 40% (section 3.3: by 0.22).",
                more(result),
                f"{sentence}.",
                where=about.where(order),
            )
        )
    return found


PHASE = Phase("ends", "End marker", measure, tables, claims)
