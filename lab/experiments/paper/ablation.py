"""Phase `ablation`: token identity against position (section 4.4, Table 4), with order-sensitive measures.

Bag-of-words F1 does not distinguish tokens in place from tokens out of place, hence edit similarity beside
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.case import RunCase
from lab.conditions import ABLATION, ALONE, ANCHORS, ORDERS, PREFIX, RANDOM_POSITIONS, RANDOM_TOKENS
from lab.experiment import About, Records, phase
from lab.experiments.paper.fills import at
from lab.plots import Picture, png
from lab.statistics import cohen_d, wilcoxon
from lab.tables import (
    MEASURES_NOTE,
    Answers,
    Claim,
    Row,
    Table,
    compare,
    less,
    metric_cells,
    more,
    verdict,
)

SMALL = 0.05
"""Differences below this, of measures from 0 to 1, count as small."""

COLUMNS = ("F1", "F1 (sets)", "chrF", "edit", "right", "sent")


def measure(case: RunCase) -> dict[str, Any]:
    rows = []
    for order in ORDERS:
        rows += [row for row in case.reference(order) if row["condition"] == ALONE]
        for step in case.lab.paper_steps:
            rows += [case.answer(order, step, name, how) for name, how in ABLATION.items()]
    return {"answers": rows}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    means: list[Row] = []
    tests: list[Row] = []
    for order in ORDERS:
        for step in about.paper_steps:
            for name in (ALONE, *ABLATION):
                group = at(answers, order, step, name)
                row: Row = {"order": order, "steps": about.share(step), "condition": name}
                means.append(row | metric_cells(group, COLUMNS))
            real = at(answers, order, step, ANCHORS)
            for name in (RANDOM_TOKENS, RANDOM_POSITIONS, PREFIX, ALONE):
                other = at(answers, order, step, name)
                for metric in ("f1", "edit"):
                    first, second = real.pairs(other, metric)
                    found = real.less(other, metric)
                    tests.append(
                        {
                            "order": order,
                            "steps": about.share(step),
                            "anchors against": name,
                            "measure": "F1" if metric == "f1" else "edit",
                            "N": len(first),
                            "difference": found.summary if found else None,
                            "Wilcoxon p": wilcoxon(first, second) if first else None,
                            "Cohen's d": cohen_d(first, second),
                        }
                    )
    paper = (
        "The paper at 10% and 25%: alone 0.125; real 0.840, 0.921; random tokens 0.002; random places "
        "0.774, 0.900."
    )
    return [
        Table.of(
            "ablation",
            "Ablation: identity against position (Table 4)",
            means,
            f"{paper} {MEASURES_NOTE}",
        ),
        Table.of(
            "ablation-tests",
            "Ablation: tests (Table 4)",
            tests,
            "Wilcoxon signed-rank, two-sided; d over the pooled deviation. The paper: d 6.41 and 0.10.",
        ),
    ]


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    found = []
    step = about.paper_steps[0]
    for order in ORDERS:
        real, alone = at(answers, order, step, ANCHORS), at(answers, order, step, ALONE)
        wrong, moved = (at(answers, order, step, name) for name in (RANDOM_TOKENS, RANDOM_POSITIONS))
        where = about.where(order, step)
        sentence, result = compare(ANCHORS, real, RANDOM_TOKENS, wrong)
        d = cohen_d(*real.pairs(wrong, "f1"))
        found.append(
            Claim(
                "Token identity matters: random tokens at the anchors' places do worse, d = 6.41 (section "
                "4.4).",
                more(result),
                f"{sentence}; d = {d:.2f}.",
                where=where,
            )
        )
        sentence, result = compare(RANDOM_TOKENS, wrong, ALONE, alone)
        found.append(
            Claim(
                "Random tokens are worse than no anchors at all (section 4.4).",
                less(result),
                f"{sentence}.",
                where=where,
            )
        )
        sentence, _ = compare(ANCHORS, real, RANDOM_POSITIONS, moved)
        ordered, _ = compare(ANCHORS, real, RANDOM_POSITIONS, moved, "edit")
        gap = real.less(moved, "edit")
        small = gap is not None and gap.summary.high < SMALL
        found.append(
            Claim(
                "Position is secondary: the tokens at random places do nearly as well, d = 0.10 (section "
                "4.4).",
                verdict(small, gap is not None and gap.verdict == "higher" and not small, len(real)),
                f"{ordered}.",
                f"By bag-of-words F1, which cannot see order: {sentence}; d = "
                f"{cohen_d(*real.pairs(moved, 'f1')):.2f}.",
                where,
            )
        )
    return found


def plots(records: Records, about: About) -> Iterator[Picture]:
    title = "Ablation (Figure 3): F1, and edit similarity, which sees order"
    yield Picture("ablation", title, _ablation(Answers.of(records), about))


def _ablation(answers: Answers, about: About) -> bytes:
    """Bars by condition and fraction, with 95% intervals: a row an order of commits, a column a measure."""
    names = (ALONE, *ABLATION)

    def draw(figure: Any) -> None:
        grid = figure.subplots(len(ORDERS), 2, sharey=True, squeeze=False)
        for row, order in zip(grid, ORDERS, strict=True):
            for axes, (metric, says) in zip(row, (("f1", "F1"), ("edit", "edit similarity")), strict=True):
                for place, name in enumerate(names):
                    for shift, step in enumerate(about.paper_steps):
                        cell = at(answers, order, step, name).cell(metric)
                        if cell is None:
                            continue
                        middle = place + 0.27 * (shift - (len(about.paper_steps) - 1) / 2)
                        ends = [[cell.mean - cell.low], [cell.high - cell.mean]]
                        label = f"{about.share(step)} steps" if not place else None
                        axes.bar(middle, cell.mean, 0.25, yerr=ends, color=f"C{shift}", label=label)
                axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=7)
                axes.set(title=f"{says}, order by {order}")
        grid[0][0].legend(fontsize=8)

    return png(draw, (12, 7))


EXPERIMENT = phase("ablation", "Ablation", measure, tables, claims, plots=plots)
