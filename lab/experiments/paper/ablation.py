"""Phase `ablation`: token identity against position (section 4.4, Table 4).

Bag-of-words F1 does not distinguish tokens in place from tokens out of place, hence edit similarity beside
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lab.case import RunCase
from lab.conditions import ABLATION, ALONE, ANCHORS
from lab.experiment import About, phase
from lab.statistics import cohen_d, wilcoxon
from lab.store import Record
from lab.tables import MEASURES_NOTE, Answers, Row, Table, metric_columns


def measure(case: RunCase) -> Iterator[Record]:
    for order, step in case.paper_steps:
        yield case.reference(order, ALONE) | {"step": step}
        yield from (case.answer(order, step, name) for name in ABLATION)


def tables(answers: Answers, about: About) -> Iterator[Table]:
    paper = (
        "The paper at 10% and 25%: alone 0.125; real 0.840, 0.921; random tokens 0.002; random places "
        f"0.774, 0.900. {MEASURES_NOTE}"
    )
    columns = metric_columns(("F1", "edit", "right", "sent"))
    title = "Ablation: identity against position (Table 4)"
    yield answers.table("ablation", title, about.by_step, columns, paper)
    tests: list[Row] = []
    for (order, step), group in answers.groups("order", "step"):
        real = group.where(condition=ANCHORS)
        others = (*(name for name in ABLATION if name != ANCHORS), ALONE)
        for name, (metric, says) in product(others, (("f1", "F1"), ("edit", "edit"))):
            other = group.where(condition=name)
            first, second = real.pairs(other, metric)
            row: Row = {"order": order, "steps": about.share(step), "anchors against": name, "measure": says}
            row |= {"N": len(first), "difference": real.less(other, metric)}
            tests.append(row | {"Wilcoxon p": wilcoxon(first, second), "Cohen's d": cohen_d(first, second)})
    note = "Wilcoxon signed-rank, two-sided; d over the pooled deviation. The paper: d 6.41 and 0.10."
    yield Table.of("ablation-tests", "Ablation: tests (Table 4)", tests, note)


EXPERIMENT = phase("ablation", "Ablation", measure, tables)
