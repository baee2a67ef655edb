"""Phase `resilience`: how an answer suffers from wrong anchors or wrong bytes (section 4.8).

The paper expects context to make errors in the template's text good, unlike those in pairs of position and
id: one byte of either is changed, without the check that every payload has. Beside them: one anchor with
another token, which no reader can see.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from edge_runtime.errors import EdgeError
from lab.case import RunCase
from lab.conditions import ALONE, Situation, committed
from lab.experiment import About, phase
from lab.experiments.paper.sending import from_pairs, to_pairs
from lab.store import Record
from lab.tables import Answers, Column, Table, against
from payload import AnchorSet, PayloadError
from payload.codecs.template import decode_template, encode_template

DRAWS = 3
TOKEN, RIGHT = "one anchor with another token", "as they are"
TEMPLATE, PAIRS = "template, plain text", "plain pairs"
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


def measure(case: RunCase) -> Iterator[Record]:
    """Means of `DRAWS` answers by kind of damage; where a body cannot be read the device writes alone."""
    at = case.situation(ORDER, case.lab.paper_steps[0])
    anchors = committed(at)
    if not len(anchors):
        return
    tokens, rng = case.form.tokenizer, random.Random(case.seed)

    def of_template(body: bytes) -> AnchorSet:
        positions, ids, canvas, length = decode_template(body, tokens, lambda data, most, what: data)
        return AnchorSet(positions, ids, canvas, case.contract, length)

    def of_pairs(body: bytes) -> AnchorSet:
        found = from_pairs(body, anchors.canvas, case.contract)
        return AnchorSet.of(found, anchors.canvas, case.contract, anchors.length)

    sent: dict[str, list[AnchorSet | None]] = {ALONE: [None], RIGHT: [anchors]}
    sent[TOKEN] = [wrong_token(at, anchors, rng) for _ in range(DRAWS)]
    bodies = {TEMPLATE: (encode_template(anchors, tokens, bytes), of_template)}
    bodies[PAIRS] = (to_pairs(anchors, case.contract), of_pairs)
    for name, (body, read) in bodies.items():
        sent[name] = [_read(case, read, changed(body, rng)) for _ in range(DRAWS)]
    for name, sets in sent.items():
        means = case.mean_score([one or case.empty() for one in sets], at.full)
        yield {"damage": name, "unread": sets.count(None) / len(sets)} | means


def _read(case: RunCase, read: Callable[[bytes], AnchorSet], body: bytes) -> AnchorSet | None:
    """The anchors of a body that the device can fill, None where it refuses them."""
    try:
        anchors = read(body)
        case.fill(anchors)
    except (PayloadError, EdgeError):
        return None
    return anchors


def tables(answers: Answers, about: About) -> Iterator[Table]:
    columns: dict[str, Column] = {"N": len, "cannot be read": "unread", "F1": "f1"}
    columns |= {"edit": "edit", "right": "right"}
    columns |= {f"F1 less {name}": against(answers, "f1", damage=name) for name in (ALONE, PAIRS)}
    note = (
        f"After {about.share(about.paper_steps[0])} steps, means of {DRAWS} draws per item; F1 is against "
        "the full run. One byte is changed in a body without a check; no codec of this project sends one."
    )
    title = "Wrong anchors and wrong bytes (section 4.8)"
    yield answers.table("resilience", title, {"anchors": "damage"}, columns, note)


EXPERIMENT = phase("resilience", "Error resilience", measure, tables)
