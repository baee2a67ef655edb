"""Phase `pivotal`: connectives among the anchors, kept or dropped (sections 5 and 6, limitations).

The paper expects pivotal tokens, discourse markers such as "Therefore", to be critical among the anchors, and
to commit early. Connectives are dropped from the paper's anchors, beside as many of the other anchors; and
those of the finished answer are added to them, beside as many of its other open tokens. The controls are
drawn at random, several times.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import Any

from lab.case import RunCase
from lab.conditions import ORDERS, Situation, committed
from lab.experiment import About, Records, phase
from lab.tables import Answers, Cell, Column, Label, Table, against, rows
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

KEPT = "all anchors"
DROPPED, OTHERS_DROPPED = "without the connectives", "without as many others"
ADDED, OTHERS_ADDED = "with the answer's connectives", "with as many others of the answer"
CONTROLS = {DROPPED: OTHERS_DROPPED, ADDED: OTHERS_ADDED}


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


def measure(case: RunCase) -> dict[str, Any]:
    answers, commits = [], []
    for order in ORDERS:
        commits += [{"order": order, **row} for row in _commits(case, order)]
        for step in case.lab.paper_steps:
            found = _compared(case, case.situation(order, step))
            answers += [{"order": order, "step": step, **row} for row in found]
    return {"answers": answers, "commits": commits}


def _compared(case: RunCase, at: Situation) -> Iterator[dict[str, Any]]:
    """Rows with connectives dropped and added; none where there are none, or too few other tokens."""
    anchors = committed(at)
    known = anchors.by_position
    # A connective among the anchors is found in the text that the device writes with all of them.
    marked = set(_find(case, case.fill(anchors).ids)) & set(known)
    open_ = {p: t for p, t in enumerate(at.full) if p not in known}
    missing = set(_find(case, at.full)) & set(open_)
    kept = {p: t for p, t in known.items() if p not in marked}

    def less(places: Collection[int]) -> AnchorSet:
        return at.anchors({p: t for p, t in known.items() if p not in places}, anchors.length)

    def plus(places: Collection[int]) -> AnchorSet:
        return at.anchors({**known, **{p: at.full[p] for p in places}}, anchors.length)

    for change, places, others, made in (
        (DROPPED, marked, kept, less),
        (ADDED, missing, open_.keys() - missing, plus),
    ):
        if not 0 < len(places) <= len(others):
            continue
        rng = random.Random(case.seed)
        controls = [made(rng.sample(sorted(others), len(places))) for _ in range(DRAWS)]
        for name, sets in ((KEPT, [anchors]), (change, [made(places)]), (CONTROLS[change], controls)):
            scores = [case.score(case.fill(one).ids, at.full) for one in sets]
            means = {m: sum(score[m] for score in scores) / len(scores) for m in ("f1", "edit", "right")}
            size = sum(case.size(one) for one in sets) / len(sets)
            yield {"change": change, "condition": name, "count": len(places), **means, "bytes": size}


def _find(case: RunCase, ids: Sequence[int]) -> list[int]:
    return connectives(ids, case.form.tokenizer.token_bytes)


def _commits(case: RunCase, order: str) -> Iterator[dict[str, Any]]:
    """Mean steps of commit of the answer's connectives and of its other tokens, where it has both."""
    run = case.runs[order]
    answer = run.answer
    marked = set(_find(case, answer))
    others = set(range(len(answer))) - marked
    if marked and others:
        for name, places in (("connectives", marked), ("others", others)):
            steps = sum(run.when[p] for p in places) / len(places)
            yield {"tokens": name, "steps": steps, "own": case.own(answer, sorted(places))}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)

    def gain(group: Answers) -> Cell:
        """Of dropped or added connectives, less as many other tokens."""
        control = CONTROLS.get(group.rows[0]["condition"])
        return against(answers, "f1", "order", "step", condition=control)(group) if control else None

    labels: dict[str, Label] = {"order": "order", "steps": ("step", about.share)}
    kinds: dict[str, Label] = {"of": "change", "anchors": "condition"}
    scores: dict[str, Column] = {"F1": "f1", "edit": "edit", "right": "right", "bytes": "bytes"}
    columns = {"N": len, "connectives": "count", **scores, "F1 less as many others": gain}
    commits = rows(
        Answers.of(records, "commits").by({"order": "order", "tokens": "tokens"}),
        {"N": len, "step of commit": "steps", "the edge's own": "own"},
    )
    note = (
        "Items in which there are connectives to drop (or to add), and as many other anchors (or open "
        f"tokens). Each control is the mean of {DRAWS} draws; F1 is against the full run."
    )
    when = "The edge's own: the share that the edge model predicts, given all before."
    return [
        Table.of("pivotal", "Connectives among the anchors", rows(answers.by(labels | kinds), columns), note),
        Table.of("pivotal-order", "When connectives commit", commits, when),
    ]


EXPERIMENT = phase("pivotal", "Pivotal tokens", measure, tables)
