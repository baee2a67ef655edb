"""Phase `gaps`: the tokens between the anchors, scored without the anchors (section 4.5, Table 5).

Over the positions of the reference without an anchor: F1 of the words there, and the share of tokens in
place. The edge alone is scored at the same positions, the prefix at those that it leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from cloud_anchor.metrics import word_f1
from lab.case import RunCase
from lab.conditions import PREFIX, committed, prefix
from lab.experiment import About, phase
from lab.statistics import spearman
from lab.store import Record
from lab.tables import Answers, Cell, Column, Table, against

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


def measure(case: RunCase) -> Iterator[Record]:
    """Nothing of a situation whose anchors cover all of the answer or none of it."""
    for order, step in case.paper_steps:
        at = case.situation(order, step)
        full, gaps = at.full, gap_positions(len(at.full), at.committed)
        if not 0 < len(gaps) < len(full):
            continue
        rest = gap_positions(len(full), range(len(at.committed)))
        selections = ((FORCED, committed(at), gaps), (PREFIX, prefix(at), rest))
        for name, anchors, where in (*selections, (SAME, case.empty(), gaps), (OWN, case.empty(), rest)):
            ids = case.fill(anchors).ids
            f1, accuracy = gap_scores(case.text, ids, full, where)
            # Every gap counts, and so does the answer's text after the reference's end.
            found = [ids[p] for p in where if p < len(ids)] + list(ids[len(full) :])
            yield {
                "order": order,
                "step": step,
                "condition": name,
                "gap_f1": f1,
                "gap_accuracy": accuracy,
                "strict": word_f1(case.text(found), case.text([full[p] for p in where])),
                "f1": word_f1(case.text(ids), case.text(full)),
                "gaps": len(where),
                "coverage": 1 - len(where) / len(full),
            }


def tables(answers: Answers, about: About) -> Iterator[Table]:
    def gain(group: Answers) -> Cell:
        """Less the edge alone at the same positions."""
        alone = OWN if group.rows[0]["condition"] == PREFIX else SAME
        return against(answers, "gap_f1", "order", "step", condition=alone)(group)

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
    yield answers.table("gaps", "Gap-only scores (Table 5)", about.by_step, columns, note)


EXPERIMENT = phase("gaps", "Gap-only scores", measure, tables)
