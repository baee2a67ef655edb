"""Phase `pivotal`: connectives among the anchors, kept or dropped (sections 5 and 6, limitations).

The paper expects pivotal tokens, discourse markers such as "Therefore", to be critical among the anchors, and
to commit early. Connectives are dropped from the paper's anchors, beside as many of the other anchors, which
are drawn at random several times.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from lab.case import RunCase
from lab.conditions import ORDERS, committed
from lab.experiment import About, phase
from lab.store import Record
from lab.tables import Answers, Column, Table, against

CONNECTIVES = """
    therefore thus hence because since so then consequently accordingly however but although though while
    whereas unless if first firstly second secondly third thirdly next finally lastly also moreover
    furthermore besides additionally instead otherwise wait now
    as_a_result in_addition in_other_words in_short in_the_end after_that for_example that_is
    """.split()
"""Words and phrases that join sentences or steps of an argument; `_` stands for a space."""

_WORDS = "|".join(sorted(CONNECTIVES, key=len, reverse=True)).replace("_", " ")
_PATTERN = re.compile(rf"(?<![A-Za-z])(?:{_WORDS})(?![A-Za-z])".encode(), re.IGNORECASE)

DRAWS = 3
"""Draws of the control."""

KEPT, DROPPED, OTHERS = "all anchors", "without the connectives", "without as many others"


def connectives(ids: Sequence[int], token_bytes: Callable[[int], bytes]) -> list[int]:
    """Positions of the tokens that hold a part of a connective, ascending."""
    parts = [token_bytes(id_) for id_ in ids]
    ends = list(accumulate(map(len, parts)))
    matches = [match.span() for match in _PATTERN.finditer(b"".join(parts))]
    return [
        p
        for p, end in enumerate(ends)
        if any(begin < end and end - len(parts[p]) < behind for begin, behind in matches)
    ]


def measure(case: RunCase) -> Iterator[Record]:
    for order in ORDERS:
        yield from _commits(case, order)
        for step in case.lab.paper_steps:
            yield from _dropped(case, order, step)


def _dropped(case: RunCase, order: str, step: int) -> Iterator[Record]:
    """Rows with connectives dropped; none where there are none, or too few other anchors."""
    at = case.situation(order, step)
    anchors = committed(at)
    # A connective among the anchors is found in the text that the device writes with all of them.
    marked = set(_find(case, case.fill(anchors).ids)) & set(anchors.positions)
    others = sorted(set(anchors.positions) - marked)
    if not 0 < len(marked) <= len(others):
        return
    rng = random.Random(case.seed)
    drawn = [set(rng.sample(others, len(marked))) for _ in range(DRAWS)]
    for name, sets in ((KEPT, [set[int]()]), (DROPPED, [marked]), (OTHERS, drawn)):
        left = [
            at.anchors({p: t for p, t in anchors.by_position.items() if p not in places}, anchors.length)
            for places in sets
        ]
        row = {"order": order, "step": step, "condition": name, "count": len(marked)}
        yield row | case.mean_score(left, at.full) | {"bytes": sum(map(case.size, left)) / len(left)}


def _find(case: RunCase, ids: Sequence[int]) -> list[int]:
    return connectives(ids, case.form.tokenizer.token_bytes)


def _commits(case: RunCase, order: str) -> Iterator[Record]:
    """Mean steps of commit of the answer's connectives and of its other tokens, where it has both."""
    run = case.runs[order]
    answer = run.answer
    marked = _find(case, answer)
    others = sorted(set(range(len(answer))) - set(marked))
    if marked and others:
        for name, places in (("connectives", marked), ("others", others)):
            steps = sum(run.when[p] for p in places) / len(places)
            yield {"order": order, "tokens": name, "steps": steps, "own": case.own(answer, places)}


def tables(answers: Answers, about: About) -> Iterator[Table]:
    dropped = Answers([row for row in answers.rows if "condition" in row])
    control = against(answers, "f1", "order", "step", condition=OTHERS)
    columns: dict[str, Column] = {
        "N": len,
        "connectives": "count",
        "F1": "f1",
        "edit": "edit",
        "right": "right",
        "bytes": "bytes",
        "F1 less as many others": lambda group: (
            control(group) if group.rows[0]["condition"] == DROPPED else None
        ),
    }
    note = (
        "Items in which there are connectives to drop, and as many other anchors. The control is the mean of "
        f"{DRAWS} draws; F1 is against the full run."
    )
    yield dropped.table("pivotal", "Connectives among the anchors", about.by_step, columns, note)
    commits = Answers([row for row in answers.rows if "tokens" in row])
    columns = {"N": len, "step of commit": "steps", "the edge's own": "own"}
    when = "The edge's own: the share that the edge model predicts, given all before."
    labels = {"order": "order", "tokens": "tokens"}
    yield commits.table("pivotal-order", "When connectives commit", labels, columns, when)


EXPERIMENT = phase("pivotal", "Pivotal tokens", measure, tables)
