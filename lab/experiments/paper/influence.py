"""Phase `influence`: what changes in the device's answer when one token is not sent (section 5, of TABES).

TABES scores a token by its effect on those that follow. Here each anchor of an edge-aware selection is left
out in turn, and its influence is the number of the answer's tokens that come out otherwise, beyond the token
itself. Compared with edge-aware's own gain, which takes one pass for all tokens, and with the step in which
the full run commits the token; and as a ranking, by which half of the payload's bytes are filled.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk, edge_aware, within_bytes
from cloud_anchor.selection.select import EDGE_AWARE, Selection, select
from lab.case import RunCase
from lab.conditions import CLAIMED_THRESHOLD, Situation
from lab.experiment import About, Records, phase
from lab.statistics import spearman
from lab.tables import Answers, Table, against, rows
from payload import AnchorSet

ORDER = "confidence"
CONFIG = EdgeAwareConfig(threshold=CLAIMED_THRESHOLD)
GAIN, INFLUENCE, EARLY, LOT = "gain", "influence", "order of commits", "by lot"


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


def measure(case: RunCase) -> dict[str, Any]:
    at = case.situation(ORDER, case.lab.paper_steps[0])
    selected = select(at.early, case.contract, Selection(EDGE_AWARE, CONFIG), at.scorer)
    walk = selected.walk
    if walk is None or not len(selected.anchors):
        return {"answers": [], "items": []}
    influence, full, rng = influences(case, selected.anchors), case.runs[ORDER], random.Random(case.seed)
    # The full run's step counts where it has the same token in that place.
    early = {p: -float(full.when[p]) for p in walk.sent if full.ids[p] == walk.text[p]}
    rankings = {
        GAIN: dict(walk.gains),
        INFLUENCE: {p: float(influence.get(p, 0)) for p in walk.sent},
        EARLY: {p: early.get(p, -float(1 << 30)) for p in walk.sent},
        LOT: {p: rng.random() for p in walk.sent},
    }
    item = {
        "anchors": len(influence),
        "influence": sum(influence.values()) / len(influence),
        "without": sum(not n for n in influence.values()) / len(influence),
        "gain_rho": _rho(influence, walk.gains),
        "early_rho": _rho(influence, early),
    }
    return {"answers": _within(case, at, walk, rankings), "items": [item]}


def _rho(influence: Mapping[int, int], other: Mapping[int, float]) -> float | None:
    """The rank correlation over one answer's anchors, None where one of the two is constant."""
    places = [p for p in influence if p in other]
    found = spearman([influence[p] for p in places], [other[p] for p in places]).rho
    return found if found == found else None


def _within(
    case: RunCase, at: Situation, walk: EdgeWalk, rankings: Mapping[str, Mapping[int, float]]
) -> list[dict[str, Any]]:
    """The answers of half of the payload's bytes, filled by each ranking."""
    whole = edge_aware(at.early, walk, case.contract)
    least = case.size(AnchorSet.empty(whole.canvas, case.contract, whole.length))
    limit = least + (case.size(whole) - least) // 2
    found = []
    for name, values in rankings.items():
        valued = replace(walk, gains=dict(values))
        chosen = within_bytes(at.scorer, at.early, valued, case.contract, CONFIG, limit, case.size)
        anchors = edge_aware(at.early, chosen, case.contract)
        labels = {"ranking": name, "bytes": case.size(anchors), "sent": len(anchors)}
        found.append(labels | case.score(case.fill(anchors).ids, at.full))
    return found


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    columns = {"bytes": "bytes", "sent": "sent", "F1": "f1", "right": "right"}
    less = {"F1 less by gain": against(answers, "f1", ranking=GAIN)}
    chosen = rows(answers.by({"chosen by": "ranking"}), {"N": len, **columns, **less})
    means = rows(
        Answers.of(records, "items").by({"benchmark": "benchmark"}),
        {
            "N": len,
            "anchors": "anchors",
            "mean influence": "influence",
            "share without any": "without",
            "rho with the gain": "gain_rho",
            "rho with an early commit": "early_rho",
        },
    )
    of_rho = (
        "Influence: tokens of the answer, without its own, that come out otherwise where one anchor is not "
        "sent. Spearman's rho within each answer, of those in which neither side is constant, averaged."
    )
    note = (
        f"After {about.share(about.paper_steps[0])} steps, threshold {CLAIMED_THRESHOLD:g}, half of the "
        "bytes between no anchors and all of them; F1 against the full run."
    )
    return [
        Table.of("influence", "Influence of a token (TABES, section 5)", means, of_rho),
        Table.of("influence-bytes", "Tokens chosen by influence, in half of the bytes", chosen, note),
    ]


EXPERIMENT = phase("influence", "Influence of a token", measure, tables)
