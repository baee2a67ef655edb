"""Phase `lookahead`: gaps decoded with lookahead to the anchors behind them, against greedy (not in the
paper).

Measured is the share of tokens in place, over the positions before the last anchor that no anchor holds. The
gain is bounded by the number of gaps with an anchor behind them, so anchors at random positions are measured
beside the committed ones, which are nearly a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edge_runtime.decode.forced import FillOptions, FillStats, fill
from lab.case import Case
from lab.conditions import ANCHORS, CONDITIONS, ORDERS, SCATTERED
from lab.experiments.phase import About, Phase, Records
from lab.tables import Answers, Row, Table
from payload import AnchorSet

SHARES = (0.1, 0.15, 0.25)
SIGHTS = (0, 1, 2, 4, 8)
"""Largest number of tokens of a gap decoded with lookahead; 0 is greedy decoding."""


def measure(case: Case) -> dict[str, Any]:
    rows = []
    for order in ORDERS:
        for share in SHARES:
            step = case.lab.step(share)
            at = case.situation(order, step)
            for name in (ANCHORS, SCATTERED):
                anchors = CONDITIONS[name].select(at)
                gaps = inner_gaps(anchors, len(at.full))
                if gaps:
                    about = {"order": order, "step": step, "condition": name, "gaps": len(gaps)}
                    rows += [about | _filled(case, anchors, sight, at.full, gaps) for sight in SIGHTS]
    return {"answers": rows}


def inner_gaps(anchors: AnchorSet, size: int) -> list[int]:
    """Positions of a reference of `size` tokens that no anchor holds, before the last one."""
    held = set(anchors.positions)
    return [p for p in range(min(max(held, default=0), size)) if p not in held]


def _filled(
    case: Case, anchors: AnchorSet, sight: int, full: Sequence[int], gaps: Sequence[int]
) -> dict[str, Any]:
    stats = FillStats()
    options = FillOptions(score_anchors=False, max_tokens=case.lab.base.canvas, lookahead=sight)
    engine = case.lab.edges[0].runtime.engine
    engine.rewind(0)
    ids = [token.id for token in fill(engine, case.prompt_ids, anchors, options, stats)]
    right = sum(p < len(ids) and ids[p] == full[p] for p in gaps)
    found = {"sight": sight, "gap_accuracy": right / len(gaps), "passes": stats.passes}
    return found | {"changed": stats.changed, **case.score(ids, full)}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    rows: list[Row] = []
    for (order, step, name), here in answers.groups("order", "step", "condition"):
        greedy = here.where(sight=0)
        for sight in SIGHTS:
            group = here.where(sight=sight)
            accuracy, f1 = (group.less(greedy, metric) for metric in ("gap_accuracy", "f1"))
            rows.append(
                {
                    "order": order,
                    "steps": about.share(step),
                    "anchors": name,
                    "lookahead": sight,
                    "N": len(group),
                    "gap tokens": group.cell("gaps"),
                    "gap-token accuracy": group.cell("gap_accuracy"),
                    "less greedy's": accuracy.summary if accuracy else None,
                    "F1": group.cell("f1"),
                    "F1 less greedy's": f1.summary if f1 else None,
                    "right": group.cell("right"),
                    "gaps changed": group.cell("changed"),
                    "passes": group.cell("passes"),
                }
            )
    columns = ("order", "steps", "anchors", "lookahead", "N", "gap tokens", "gap-token accuracy")
    note = (
        "Items with a gap before the last anchor; gap tokens are the reference's positions in such gaps. "
        "Lookahead is the most tokens of a gap that are chosen with sight of the anchors behind it; 0 is "
        "greedy decoding. Differences are paired by item."
    )
    more = ("less greedy's", "F1", "F1 less greedy's", "right", "gaps changed", "passes")
    return [Table("lookahead", "Gaps chosen with lookahead", (*columns, *more), rows, note)]


PHASE = Phase("lookahead", "Lookahead", measure, tables)
