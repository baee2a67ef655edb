"""Phase `sizes`: edge models of several sizes in one precision, with the same controls (Table 3)."""

from __future__ import annotations

from collections.abc import Iterator

from lab.case import Lab, RunCase
from lab.conditions import ALONE, ANCHORS, CLAIMED, ORDERS, PREFIX
from lab.experiment import About, phase
from lab.store import Record
from lab.tables import Answers, Row, Table


def needs(lab: Lab) -> str | None:
    return None if len(lab.edges) > 1 else "expected a second, larger edge model (--edge SMALL LARGE)"


def measure(case: RunCase) -> Iterator[Record]:
    for edge in case.lab.edges:
        own = RunCase(case.lab, case.item, case.runs, edge)
        for order in ORDERS:
            yield {"edge": edge.name} | own.reference(order, ALONE)
            for step in case.lab.paper_steps:
                for name in (ANCHORS, PREFIX, CLAIMED):
                    yield {"edge": edge.name} | own.answer(order, step, name)


def tables(answers: Answers, about: About) -> Iterator[Table]:
    small, *others = about.edges
    found: list[Row] = []
    for labels, group in answers.by(about.by_step):
        base = group.where(edge=small)
        for metric, says in (("f1", "F1"), ("right", "right")):
            row: Row = labels | {"measure": says, "N": len(base), small: base.cell(metric)}
            for name in others:
                other = group.where(edge=name)
                row |= {name: other.cell(metric), f"{name} less {small}": other.less(base, metric)}
            found.append(row)
    sizes = ", ".join(
        f"{name} has {count / 1e6:.2f} million parameters" for name, count in about.edges.items()
    )
    note = f"{sizes}; all in {about.variant}. The paper: alone +0.081, with anchors -0.009."
    yield Table.of("sizes", "Size of the edge model (Table 3)", found, note)


EXPERIMENT = phase("sizes", "Size of the edge model", measure, tables, limit=60, needs=needs)
