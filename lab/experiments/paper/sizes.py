"""Phase `sizes`: edge models of several sizes in one precision, with the same controls (Table 3)."""

from __future__ import annotations

from typing import Any

from lab.case import Lab, RunCase
from lab.conditions import ALONE, ANCHORS, CLAIMED_THRESHOLD, CONDITIONS, ORDERS, PREFIX, aware
from lab.experiment import About, Records, phase
from lab.tables import Answers, Label, Row, Table, less_than

NAMES = (ANCHORS, PREFIX, aware(CLAIMED_THRESHOLD))


def needs(lab: Lab) -> str | None:
    return None if len(lab.edges) > 1 else "expected a second, larger edge model (--edge SMALL LARGE)"


def measure(case: RunCase) -> dict[str, Any]:
    rows = []
    for edge in case.lab.edges:
        own = RunCase(case.lab, case.item, case.runs, edge)
        for order in ORDERS:
            alone = [row for row in own.reference(order) if row["condition"] == ALONE]
            found = [
                own.answer(order, step, name, CONDITIONS[name])
                for step in case.lab.paper_steps
                for name in NAMES
            ]
            rows += [{"edge": edge.name, **row} for row in alone + found]
    return {"answers": rows}


def tables(records: Records, about: About) -> list[Table]:
    small, *others = about.edges
    found: list[Row] = []
    steps: dict[str, Label] = {"order": "order", "steps": ("step", about.share), "condition": "condition"}
    for labels, group in Answers.of(records).by(steps):
        base = group.where(edge=small)
        for metric in ("f1", "right"):
            row: Row = labels | {"measure": "F1" if metric == "f1" else metric, "N": len(base)}
            row[small] = base.cell(metric)
            for name in others:
                other = group.where(edge=name)
                row[name] = other.cell(metric)
                row[f"{name} less {small}"] = less_than(base, metric)(other)
            found.append(row)
    sizes = ", ".join(
        f"{name} has {count / 1e6:.2f} million parameters" for name, count in about.edges.items()
    )
    title = "Size of the edge model (Table 3)"
    note = f"{sizes}; all in {about.variant}. The paper: alone +0.081, with anchors -0.009."
    return [Table.of("sizes", title, found, note)]


EXPERIMENT = phase("sizes", "Size of the edge model", measure, tables, limit=60, needs=needs)
