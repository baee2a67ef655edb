"""Phase `pivotal`: connectives among the anchors, kept or dropped (sections 5 and 6, limitations).

The paper expects pivotal tokens, discourse markers such as "Therefore", to be critical among the anchors.
Connectives are dropped from the anchors, beside as many of the other anchors; and those of the finished
answer are added to the anchors, beside as many of its other open tokens. The controls are drawn at random,
several times. A connective's tokens are found in the text that the device writes with all of the anchors.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from lab.case import RunCase
from lab.conditions import (
    ANCHORS,
    CLAIMED_THRESHOLD,
    ORDERS,
    Select,
    Situation,
    aware,
    committed,
    edge_aware,
)
from lab.experiment import About, Records, phase
from lab.tables import Answers, Claim, Label, Table, compare, compared, less, rows, told
from payload import AnchorSet

CONNECTIVES = """
    therefore thus hence because since so then consequently accordingly however but although though while
    whereas unless if first firstly second secondly third thirdly next finally lastly also moreover
    furthermore besides additionally instead otherwise wait now
    as_a_result in_addition in_other_words in_short in_the_end after_that for_example that_is
    """.split()
"""Words and phrases that join sentences or steps of an argument; `_` stands for a space."""

_PATTERN = re.compile(
    rb"(?<![A-Za-z])(?:"
    + b"|".join(word.replace("_", " ").encode() for word in sorted(CONNECTIVES, key=len, reverse=True))
    + rb")(?![A-Za-z])",
    re.IGNORECASE,
)

DRAWS = 3
"""Draws of each control."""

KEPT, DROPPED, OTHERS_DROPPED = "all anchors", "without the connectives", "without as many others"
ADDED, OTHERS_ADDED = "with the answer's connectives", "with as many others of the answer"

SELECTIONS: Mapping[str, Select] = {
    ANCHORS: committed,
    aware(CLAIMED_THRESHOLD): partial(edge_aware, threshold=CLAIMED_THRESHOLD),
}


def connectives(ids: Sequence[int], token_bytes: Callable[[int], bytes]) -> list[int]:
    """Positions of the tokens that hold a part of a connective, ascending."""
    parts = [token_bytes(id_) for id_ in ids]
    ends = list(accumulate(map(len, parts)))
    found = []
    for match in _PATTERN.finditer(b"".join(parts)):
        found += [
            p for p, end in enumerate(ends) if end > match.start() and end - len(parts[p]) < match.end()
        ]
    return sorted(set(found))


def _draw(among: Sequence[int], count: int, seed: int) -> list[set[int]]:
    """`DRAWS` samples of `count` positions; none where there are too few."""
    rng = random.Random(seed)
    return [set(rng.sample(among, count)) for _ in range(DRAWS)] if 0 < count <= len(among) else []


def _without(at: Situation, anchors: AnchorSet, dropped: Collection[int]) -> AnchorSet:
    kept = {p: t for p, t in anchors.by_position.items() if p not in dropped}
    return at.anchors(kept, anchors.length)


def measure(case: RunCase) -> dict[str, Any]:
    answers, ranks = [], []
    for order in ORDERS:
        ranks += _ranks(case, order)
        for step in case.lab.paper_steps:
            at = case.situation(order, step)
            for name, select in SELECTIONS.items():
                found = _dropped(case, at, select(at))
                if name == ANCHORS:
                    found += _added(case, at, select(at))
                answers += [{"order": order, "step": step, "selection": name, **row} for row in found]
    return {"answers": answers, "ranks": ranks}


def _find(case: RunCase, ids: Sequence[int]) -> list[int]:
    return connectives(ids, case.form.tokenizer.token_bytes)


def _dropped(case: RunCase, at: Situation, anchors: AnchorSet) -> list[dict[str, Any]]:
    """Rows of the anchors with and without their connectives; none without connectives or enough others."""
    marked = set(_find(case, case.fill(anchors).ids)) & set(anchors.positions)
    controls = _draw([p for p in anchors.positions if p not in marked], len(marked), case.seed)
    if not controls:
        return []
    return [
        _row(case, at, KEPT, "drop", [anchors], len(marked)),
        _row(case, at, DROPPED, "drop", [_without(at, anchors, marked)], len(marked)),
        _row(case, at, OTHERS_DROPPED, "drop", [_without(at, anchors, c) for c in controls], len(marked)),
    ]


def _added(case: RunCase, at: Situation, anchors: AnchorSet) -> list[dict[str, Any]]:
    """Rows of the anchors with connectives of the finished answer added; none where none is open."""
    known = anchors.by_position
    marked = {p for p in _find(case, at.full) if p not in known}
    open_ = [p for p in range(len(at.full)) if p not in known and p not in marked]
    controls = _draw(open_, len(marked), case.seed)
    if not controls:
        return []

    def plus(places: Collection[int]) -> AnchorSet:
        return at.anchors({**known, **{p: at.full[p] for p in places}}, anchors.length)

    return [
        _row(case, at, KEPT, "add", [anchors], len(marked)),
        _row(case, at, ADDED, "add", [plus(marked)], len(marked)),
        _row(case, at, OTHERS_ADDED, "add", [plus(places) for places in controls], len(marked)),
    ]


def _row(
    case: RunCase, at: Situation, name: str, change: str, sets: Sequence[AnchorSet], count: int
) -> dict[str, Any]:
    """Mean scores over anchor sets of one condition."""
    scores = [case.score(case.fill(anchors).ids, at.full) for anchors in sets]
    means = {m: sum(score[m] for score in scores) / len(scores) for m in ("f1", "edit", "right")}
    size = sum(case.size(anchors) for anchors in sets) / len(sets)
    return {"condition": name, "change": change, "connectives": count, **means, "bytes": size}


def _ranks(case: RunCase, order: str) -> list[dict[str, Any]]:
    """When the answer's connectives were committed, as a share of its commits before them, and the others;
    and the share of each that the edge model writes by itself.
    """
    run = case.runs[order]
    answer = run.answer
    marked = set(_find(case, answer))
    others = [p for p in range(len(answer)) if p not in marked]
    if not marked or not others:
        return []
    when = run.when[: len(answer)]
    earlier = [
        (sum(other < own for other in when) + (sum(other == own for other in when) - 1) / 2) / (len(when) - 1)
        for own in when
    ]
    return [
        {
            "order": order,
            "tokens": name,
            "count": len(places),
            "rank": sum(earlier[p] for p in places) / len(places),
            "own": case.own(answer, places),
        }
        for name, places in (("connectives", sorted(marked)), ("others", others))
    ]


COLUMNS = {"F1": "f1", "edit": "edit", "right": "right", "bytes": "bytes", "connectives": "connectives"}


def tables(records: Records, about: About) -> list[Table]:
    steps: dict[str, Label] = {"order": "order", "steps": ("step", about.share)}
    kinds: dict[str, Label] = {"selection": "selection", "change": "change", "anchors": "condition"}
    found = rows(Answers.of(records).by(steps | kinds), {"N": len, **COLUMNS})
    for row in found:
        del row["change"]  # its conditions have names of their own
    ranks = rows(
        Answers.of(records, "ranks").by({"order": "order", "tokens": "tokens"}),
        {"N": len, "a text": "count", "commits before them": "rank", "the edge's own": "own"},
    )
    note = (
        "Items in which there are connectives to drop (or to add), and as many other anchors (or "
        "open tokens). "
        f"Each control is the mean of {DRAWS} draws. F1 and edit similarity are against the full run."
    )
    when = (
        "Commits before them: the share of the answer's other tokens that were committed earlier, "
        "0.5 on average; "
        "ties count half. The edge's own: the share that the edge model writes by itself, given all before."
    )
    return [
        Table.of("pivotal", "Connectives among the anchors", found, note),
        Table.of("pivotal-order", "When connectives commit", ranks, when),
    ]


def claims(records: Records, about: About) -> list[Claim]:
    answers, ranks = Answers.of(records), Answers.of(records, "ranks")
    found = []
    step = about.paper_steps[0]
    for order in ORDERS:
        for selection in SELECTIONS:
            here = answers.where(order=order, step=step, selection=selection, change="drop")

            def dropped(name: str, here: Answers = here) -> Answers:
                return here.where(condition=name)

            if len(dropped(DROPPED)):
                found.append(
                    compared(
                        "Pivotal tokens are critical among the anchors: to drop them costs more than to "
                        "drop others (section 6, limitations).",
                        dropped,
                        DROPPED,
                        OTHERS_DROPPED,
                        decide=less,
                        why=f"{told(dropped, DROPPED, OTHERS_DROPPED, 'right')}.",
                        where=f"{about.where(order, step)}; {selection}",
                    )
                )
        here = answers.where(order=order, step=step, selection=ANCHORS, change="add")

        def added(name: str, here: Answers = here) -> Answers:
            return here.where(condition=name)

        if len(here):
            found.append(
                compared(
                    "To make sure of pivotal tokens among the anchors does more than to add others "
                    "(section 6, limitations).",
                    added,
                    ADDED,
                    OTHERS_ADDED,
                    where=about.where(order, step),
                )
            )
        pivots, rest = (ranks.where(order=order, tokens=name) for name in ("connectives", "others"))
        if len(pivots):
            sentence, result = compare("connectives", pivots, "other tokens", rest, "rank")
            own, _ = compare("connectives", pivots, "other tokens", rest, "own")
            found.append(
                Claim(
                    "Pivotal tokens commit early (section 6, limitations).",
                    less(result),
                    f"Commits before them: {sentence}.",
                    f"What the edge model writes by itself: {own}.",
                    about.where(order),
                )
            )
    return found


EXPERIMENT = phase("pivotal", "Pivotal tokens", measure, tables, claims)
