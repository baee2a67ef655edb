"""Phase `influence`: what changes in the device's answer when one token is not sent (section 5, of TABES).

TABES scores a token by its effect on those that follow. Here each anchor of an edge-aware selection is left
out in turn, and its influence is the number of the answer's tokens that come out otherwise, beyond the token
itself; beside edge-aware's own gain, which takes one pass for all, and the step in which the full run commits
the token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import EDGE_AWARE, Selection, select
from lab.case import RunCase
from lab.conditions import CLAIMED_THRESHOLD
from lab.experiment import About, phase
from lab.statistics import spearman
from lab.store import Record
from lab.tables import Answers, Column, Table
from payload import AnchorSet

ORDER = "confidence"
SELECTION = Selection(EDGE_AWARE, EdgeAwareConfig(threshold=CLAIMED_THRESHOLD))


def influences(case: RunCase, anchors: AnchorSet) -> dict[int, int]:
    """By position of an anchor, the tokens that differ in the answer without it, its own not counted."""
    whole = case.fill(anchors).ids
    found = {}
    for position in anchors.positions:
        kept = {p: t for p, t in anchors.by_position.items() if p != position}
        ids = case.fill(AnchorSet.of(kept, anchors.canvas, anchors.contract, anchors.length)).ids
        differs = sum(a != b for p, (a, b) in enumerate(zip(whole, ids, strict=False)) if p != position)
        found[position] = differs + abs(len(whole) - len(ids))
    return found


def measure(case: RunCase) -> Iterator[Record]:
    at, full = case.situation(ORDER, case.lab.paper_steps[0]), case.runs[ORDER]
    selected = select(at.early, case.contract, SELECTION, at.scorer)
    if selected.walk is None or not len(selected.anchors):
        return
    text, found = selected.walk.text, influences(case, selected.anchors)
    # The full run's step counts where it has the same token in that place.
    early = {p: -float(full.when[p]) for p in selected.walk.sent if full.ids[p] == text[p]}
    yield {
        "anchors": len(found),
        "influence": sum(found.values()) / len(found),
        "without": sum(not n for n in found.values()) / len(found),
        "gain_rho": _rho(found, selected.walk.gains),
        "early_rho": _rho(found, early),
    }


def _rho(influence: Mapping[int, int], other: Mapping[int, float]) -> float | None:
    """The rank correlation over one answer's anchors, None where one of the two is constant."""
    places = [p for p in influence if p in other]
    found = spearman([influence[p] for p in places], [other[p] for p in places]).rho
    return found if found == found else None


def tables(answers: Answers, about: About) -> Iterator[Table]:
    columns: dict[str, Column] = {
        "N": len,
        "anchors": "anchors",
        "mean influence": "influence",
        "share without any": "without",
        "rho with the gain": "gain_rho",
        "rho with an early commit": "early_rho",
    }
    note = (
        f"After {about.share(about.paper_steps[0])} steps, threshold {CLAIMED_THRESHOLD:g}. Influence: "
        "tokens of the answer, without its own, that come out otherwise where one anchor is not sent. "
        "Spearman's rho within each answer, of those in which neither side is constant, averaged."
    )
    title = "Influence of a token (TABES, section 5)"
    yield answers.table("influence", title, {"benchmark": "benchmark"}, columns, note)


EXPERIMENT = phase("influence", "Influence of a token", measure, tables)
