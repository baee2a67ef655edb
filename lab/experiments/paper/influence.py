"""Phase `influence`: what changes in the device's answer when one token is not sent (section 5, of TABES).

TABES scores a token by its effect on those that follow. Here each anchor of an edge-aware selection is left
out in turn, and its influence is the number of the answer's tokens that come out otherwise, beyond the token
itself. Compared with edge-aware's own gain, which takes one pass for all tokens, and with the step in which
the full run commits the token; and as a ranking, by which a payload of a given number of bytes is filled.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk, edge_aware, within_bytes
from cloud_anchor.selection.select import EDGE_AWARE, Selection, select
from lab.case import RunCase
from lab.conditions import CLAIMED_THRESHOLD, PARALLEL, Situation
from lab.experiment import About, Records, phase
from lab.statistics import spearman
from lab.tables import Answers, Claim, Table, compared, rows, spread, told, verdict
from payload import AnchorSet

ORDER = "confidence"
SHARES = (0.25, 0.5, 0.75)
"""Shares of the bytes between a payload without anchors and one with all of them."""

GAIN, INFLUENCE, BOTH = "gain", "influence", "gain x influence"
EARLY, LOT, EVERYTHING = "order of commits", "by lot", "all anchors"
PLANS: Mapping[str, float] = {ORDER: CLAIMED_THRESHOLD, PARALLEL: 0.0}
"""Runs and the thresholds of their selections: the claimed one, and the product's."""

CLAIMED_SHARE = 0.5


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


def rankings(
    walk: EdgeWalk, influence: Mapping[int, int], when: Mapping[int, int], seed: int
) -> dict[str, dict[int, float]]:
    """Values by which tokens are chosen, the highest first."""
    rng = random.Random(seed)
    gains = walk.gains
    return {
        GAIN: dict(gains),
        INFLUENCE: {p: float(influence.get(p, 0)) for p in walk.sent},
        BOTH: {p: gains[p] * (1 + influence.get(p, 0)) for p in walk.sent},
        EARLY: {p: -float(when.get(p, 1 << 30)) for p in walk.sent},
        LOT: {p: rng.random() for p in walk.sent},
    }


def measure(case: RunCase) -> dict[str, Any]:
    step = case.lab.paper_steps[0]
    found: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    for plan, threshold in PLANS.items():
        at = case.situation(ORDER, step)
        if plan == PARALLEL:
            if at.parallel is None:
                continue
            at = at.parallel
        config = EdgeAwareConfig(threshold=threshold)
        (selected,) = select([at.early], case.contract, Selection(EDGE_AWARE, config), at.scorer)
        walk = selected.walk
        if walk is None or not len(selected.anchors):
            continue
        influence = influences(case, selected.anchors)
        full = case.runs[ORDER]
        # The full run's step counts where it has the same token in that place.
        when = {p: full.when[p] for p in walk.sent if full.ids[p] == walk.text[p]}
        labels = {"plan": plan, "step": step}
        items.append(labels | _correlations(walk, influence, when))
        found += [
            labels | row
            for row in _within(case, at, walk, config, rankings(walk, influence, when, case.seed))
        ]
    return {"answers": found, "items": items}


def _correlations(walk: EdgeWalk, influence: Mapping[int, int], when: Mapping[int, int]) -> dict[str, Any]:
    """Rank correlations over one answer's anchors, None where one of the two is constant."""

    def rho(one: Mapping[int, float], other: Mapping[int, float]) -> float | None:
        places = [p for p in influence if p in one and p in other]
        found = spearman([one[p] for p in places], [other[p] for p in places]).rho
        return round(found, 6) if found == found else None

    counts = {p: float(n) for p, n in influence.items()}
    places = {p: -float(p) for p in influence}
    return {
        "anchors": len(influence),
        "influence": sum(influence.values()) / len(influence),
        "without": sum(not n for n in influence.values()) / len(influence),
        "gain_rho": rho(counts, walk.gains),
        "early_rho": rho(counts, {p: -float(step) for p, step in when.items()}),
        "place_rho": rho(counts, places),
    }


def _within(
    case: RunCase,
    at: Situation,
    walk: EdgeWalk,
    config: EdgeAwareConfig,
    ranked: Mapping[str, Mapping[int, float]],
) -> list[dict[str, Any]]:
    """The answers of payloads of some of the bytes, filled by each ranking; and that of all anchors."""
    whole = edge_aware(at.early, walk, case.contract)
    most, least = case.size(whole), case.size(AnchorSet.empty(whole.canvas, case.contract, whole.length))
    score = case.score(case.fill(whole).ids, at.full)
    found = [{"share": 1.0, "ranking": EVERYTHING, "bytes": most, "sent": len(whole), **_kept(score)}]
    for share in SHARES:
        limit = least + int(share * (most - least))
        for name, values in ranked.items():
            valued = replace(walk, gains=dict(values))
            chosen = within_bytes(
                at.scorer, at.early, valued, case.contract, config, max(limit, least), case.size
            )
            anchors = edge_aware(at.early, chosen, case.contract)
            score = case.score(case.fill(anchors).ids, at.full)
            labels = {"share": share, "ranking": name, "bytes": case.size(anchors), "sent": len(anchors)}
            found.append(labels | _kept(score))
    return found


def _kept(score: Mapping[str, float]) -> dict[str, float]:
    return {name: score[name] for name in ("f1", "edit", "right")}


def tables(records: Records, about: About) -> list[Table]:
    chosen = rows(
        Answers.of(records).by(
            {"run": "plan", "share of the bytes": ("share", "{:.0%}".format), "chosen by": "ranking"}
        ),
        {"N": len, "bytes": "bytes", "sent": "sent", "F1": "f1", "edit": "edit", "right": "right"},
    )
    means = rows(
        Answers.of(records, "items").by({"run": "plan"}),
        {
            "N": len,
            "anchors": "anchors",
            "mean influence": "influence",
            "share without any": "without",
            "rho with the gain": "gain_rho",
            "rho with an early commit": "early_rho",
            "rho with an early place": "place_rho",
        },
    )
    where = about.share(about.paper_steps[0])
    note = (
        f"After {where} steps; the selection of threshold {CLAIMED_THRESHOLD:g} in the run by quota, "
        "that of the "
        "product's defaults in the run with parallel commits. A share of the bytes is that of those "
        "between no "
        "anchors and all of them. The cloud computes the device's text again for every choice, as for "
        "--max-bytes. F1 and edit similarity are against the full run."
    )
    of_rho = (
        "Influence: tokens of the answer, without its own, that come out otherwise where one anchor "
        "is not sent. "
        "Spearman's rho within each answer, of those in which neither side is constant, averaged "
        "over answers. "
        "An early place is that nearer to the beginning, which has more tokens behind it."
    )
    return [
        Table.of("influence", "Influence of a token (TABES, section 5)", means, of_rho),
        Table.of("influence-bytes", "Tokens chosen by influence, at equal bytes", chosen, note),
    ]


def claims(records: Records, about: About) -> list[Claim]:
    answers, items = Answers.of(records), Answers.of(records, "items")
    found = []
    for plan in PLANS:
        where = f"run {plan}, {about.share(about.paper_steps[0])} steps"
        group = items.where(plan=plan)
        for metric, says in (
            (
                "early_rho",
                "What is committed early is load-bearing: more of the answer depends on it (section 5).",
            ),
            ("gain_rho", "Edge-aware's gain, of one pass, ranks tokens as their influence does."),
        ):
            cell = group.cell(metric)
            if cell is None:
                continue
            place = group.cell("place_rho")
            found.append(
                Claim(
                    says,
                    verdict(cell.low > 0, cell.high < 0 or max(-cell.low, cell.high) < WEAK, cell.n),
                    f"Mean of Spearman's rho within an answer {spread(cell, '+.2f')}.",
                    f"With the place, an early one counting more: {place.mean:+.2f}." if place else "",
                    where,
                )
            )
        here = answers.where(plan=plan, share=CLAIMED_SHARE)
        if not len(here):
            continue

        def of(name: str, here: Answers = here) -> Answers:
            return here.where(ranking=name)

        found.append(
            compared(
                "Chosen by influence, the tokens of a payload keep more of the answer than chosen by gain.",
                of,
                INFLUENCE,
                GAIN,
                why=f"{told(of, INFLUENCE, GAIN, 'right')}. {told(of, GAIN, LOT)}.",
                where=f"{where}, {CLAIMED_SHARE:.0%} of the bytes",
            )
        )
    return found


WEAK = 0.1
"""A mean correlation counts as none where its whole interval is closer to 0 than this."""

EXPERIMENT = phase("influence", "Influence of a token", measure, tables, claims)
