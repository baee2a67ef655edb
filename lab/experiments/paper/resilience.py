"""Phase `resilience`: how an answer suffers from wrong anchors or wrong bytes (section 4.8).

The paper expects context to make errors in the template's text good, unlike those in pairs of position and
id: one byte of either is changed, and of codec compact's body, all without the check that every payload has.
Beside them: one anchor with another token, which no reader can see.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from edge_runtime.errors import EdgeError
from lab.case import RunCase
from lab.conditions import ALONE, Situation, committed
from lab.experiment import About, Records, phase
from lab.formats.pairs import from_pairs, to_pairs
from lab.tables import Answers, Label, Table, against, rows
from payload import AnchorSet, PayloadError
from payload.codecs import compact
from payload.codecs.template import Shape, decode_template, encode_template

DRAWS = 3
TOKEN, RIGHT = "one anchor with another token", "as they are"
TEMPLATE, PAIRS, COMPACT = "template, plain text", "plain pairs", "compact's body"


ORDER = "entropy"
"""Of commits: the paper's."""


def wrong_token(at: Situation, anchors: AnchorSet, rng: random.Random) -> AnchorSet:
    """The anchors, one of them with another ordinary token; the length as it was."""
    tokens = dict(anchors.by_position)
    position = rng.choice(anchors.positions)
    other = tokens[position]
    while other == tokens[position] or not at.contract.is_ordinary(other):
        other = rng.randrange(at.contract.vocab_size)
    return at.anchors(tokens | {position: other}, anchors.length)


def changed(data: bytes, rng: random.Random) -> bytes:
    """The data with one of its bytes replaced by another."""
    out = bytearray(data)
    out[rng.randrange(len(out))] ^= rng.randrange(1, 256)
    return bytes(out)


def measure(case: RunCase) -> dict[str, Any]:
    """Means of `DRAWS` answers by kind of damage; where a body cannot be read the device writes alone."""
    at = case.situation(ORDER, case.lab.paper_steps[0])
    anchors = committed(at)
    if not len(anchors):
        return {"answers": []}
    rng = random.Random(case.seed)
    wrong = [wrong_token(at, anchors, rng) for _ in range(DRAWS)]
    sent: dict[str, list[AnchorSet | None]] = {ALONE: [None], RIGHT: [anchors], TOKEN: [*wrong]}
    for name, (body, read) in _bodies(case, anchors).items():
        sent[name] = [_read(case, read, changed(body, rng)) for _ in range(DRAWS)]
    found = []
    for name, sets in sent.items():
        scores = [case.score(case.fill(one or case.empty()).ids, at.full) for one in sets]
        means = {m: sum(score[m] for score in scores) / len(scores) for m in ("f1", "edit", "right")}
        found.append({"damage": name, "unread": sets.count(None) / len(sets), **means})
    return {"answers": found}


def _bodies(case: RunCase, anchors: AnchorSet) -> dict[str, tuple[bytes, Callable[[bytes], Shape]]]:
    """Bodies without a check, and how each is read; of plain pairs, canvas and length are taken as known."""
    tokens = case.form.tokenizer

    def of_pairs(body: bytes) -> Shape:
        found = from_pairs(body, anchors.canvas, anchors.contract)
        positions = tuple(sorted(found))
        return positions, tuple(found[p] for p in positions), anchors.canvas, anchors.length

    return {
        TEMPLATE: (
            encode_template(anchors, tokens, bytes),
            lambda body: decode_template(body, tokens, lambda data, most, what: data),
        ),
        PAIRS: (to_pairs(anchors, case.contract), of_pairs),
        COMPACT: (
            compact.encode(anchors, case.prompt_ids, None),
            lambda body: compact.decode(body, case.contract, case.prompt_ids, None),
        ),
    }


def _read(case: RunCase, read: Callable[[bytes], Shape], body: bytes) -> AnchorSet | None:
    """The anchors of a body that the device can fill, None where it refuses them."""
    try:
        positions, ids, canvas, length = read(body)
        anchors = AnchorSet(positions, ids, canvas, case.contract, length)
        case.fill(anchors)
    except (PayloadError, EdgeError):
        return None
    return anchors


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    labels: dict[str, Label] = {"anchors": "damage"}
    less = {f"F1 less {name}": against(answers, "f1", damage=name) for name in (ALONE, PAIRS)}
    scores = {"cannot be read": "unread", "F1": "f1", "edit": "edit", "right": "right"}
    note = (
        f"After {about.share(about.paper_steps[0])} steps, means of {DRAWS} draws per item; F1 is against "
        "the full run. One byte is changed in a body without a check; no codec of this project sends one."
    )
    found = rows(answers.by(labels), {"N": len, **scores, **less})
    return [Table.of("resilience", "Wrong anchors and wrong bytes (section 4.8)", found, note)]


EXPERIMENT = phase("resilience", "Error resilience", measure, tables)
