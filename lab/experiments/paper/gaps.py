"""Phase `gaps`: the tokens between the anchors, scored without the anchors (section 4.5, Table 5).

Over the positions of the reference without an anchor: F1 of the words there, and the share of tokens in
place. Both are computed as for the published figures, and F1 also in a stricter form. The edge alone is
scored at the same positions, the prefix at those that it leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from cloud_anchor.metrics import word_f1
from lab.case import RunCase
from lab.conditions import ORDERS, PREFIX, Situation, committed, prefix
from lab.experiment import About, Records, phase
from lab.statistics import spearman
from lab.tables import Answers, Cell, Column, Label, Table, against, rows
from payload import AnchorSet

FORCED, SAME, OWN = "anchors, filled", "edge alone, same positions", "edge alone, the prefix's gaps"


def gap_positions(size: int, held: Collection[int]) -> list[int]:
    """Positions of a reference of `size` tokens that are not held."""
    return [p for p in range(size) if p not in held]


def gap_scores(
    text: Callable[[Sequence[int]], str], ids: Sequence[int], reference: Sequence[int], gaps: Sequence[int]
) -> tuple[float, float]:
    """The published gap-only word F1 and gap-token accuracy, over the gaps that both answers reach.

    text: decodes ids. An answer that ends too early loses nothing here, but in its full F1. Without a gap to
    compare, F1 is 1 and accuracy 0, as published.
    """
    common = [p for p in gaps if p < min(len(ids), len(reference))]
    f1 = word_f1(text([ids[p] for p in common]), text([reference[p] for p in common]))
    right = sum(ids[p] == reference[p] for p in common)
    return f1, right / len(common) if common else 0.0


def measure(case: RunCase) -> dict[str, Any]:
    steps = case.lab.paper_steps
    return {"answers": [row for order in ORDERS for step in steps for row in _at(case, order, step)]}


def _at(case: RunCase, order: str, step: int) -> list[dict[str, Any]]:
    """Rows of one situation; none where the anchors cover all of the answer or none of it."""
    at = case.situation(order, step)
    gaps = gap_positions(len(at.full), at.committed)
    if not gaps or len(gaps) == len(at.full):
        return []
    rest = gap_positions(len(at.full), range(len(at.committed)))
    selections: tuple[tuple[str, AnchorSet, list[int]], ...] = (
        (FORCED, committed(at), gaps),
        (PREFIX, prefix(at), rest),
        (SAME, case.empty(), gaps),
        (OWN, case.empty(), rest),
    )
    found = [_row(case, at, name, case.fill(anchors).ids, where) for name, anchors, where in selections]
    return [{"order": order, "step": step, **row} for row in found]


def _row(case: RunCase, at: Situation, name: str, ids: Sequence[int], where: Sequence[int]) -> dict[str, Any]:
    f1, accuracy = gap_scores(case.text, ids, at.full, where)
    # Every gap counts, and so does the answer's text after the reference's end.
    found = [ids[p] for p in where if p < len(ids)] + list(ids[len(at.full) :])
    return {
        "condition": name,
        "gap_f1": f1,
        "gap_accuracy": accuracy,
        "strict": word_f1(case.text(found), case.text([at.full[p] for p in where])),
        "f1": word_f1(case.text(ids), case.text(at.full)),
        "gaps": len(where),
        "coverage": 1 - len(where) / len(at.full),
    }


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)

    def gain(group: Answers) -> Cell:
        """Less the edge alone at the same positions."""
        alone = OWN if group.rows[0]["condition"] == PREFIX else SAME
        return against(answers, "gap_f1", "order", "step", condition=alone)(group)

    labels: dict[str, Label] = {"order": "order", "steps": ("step", about.share), "condition": "condition"}
    columns: dict[str, Column] = {
        "N": len,
        "gap-only F1": "gap_f1",
        "less the edge alone there": gain,
        "gap-token accuracy": "gap_accuracy",
        "gap F1, all gaps": "strict",
        "full F1": "f1",
        "gap tokens": "gaps",
        "coverage": "coverage",
        "gap F1 and coverage": lambda group: spearman(group.values("coverage"), group.values("gap_f1")),
    }
    note = (
        "Items whose answer the anchors cover in part. Gaps are the reference's positions without an "
        "anchor; as published, those that both answers reach are compared, and beside it all of them with "
        "what the answer says behind the reference's end. The last column is Spearman's rho. The paper at "
        "10% (N 20): 0.475 gap F1 against 0.231 alone, rho -0.037."
    )
    found = rows(answers.by(labels), columns)
    return [Table("gaps", "Gap-only scores (Table 5)", (*labels, *columns), found, note)]


EXPERIMENT = phase("gaps", "Gap-only scores", measure, tables)
