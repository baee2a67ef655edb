"""Phase `bytes`: payload bytes by codec and selection, against the full text (sections 3.1 and 4.8).

Beside them plain (position, id) pairs, as section 3.1 counts them: no codec of the wire, without a header, a
check or the answer's length.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from lab.case import RunCase
from lab.conditions import ANCHORS, CLAIMED, CONDITIONS, DRAFT, FULL, PREFIX, SCATTERED
from lab.experiment import About, phase
from lab.store import Record
from lab.tables import Answers, Column, Label, Table
from payload import AnchorSet, Codec, Contract

CODECS = {
    "compact, prompt known": (Codec.COMPACT, True),
    "compact": (Codec.COMPACT, False),
    "template + gzip": (Codec.TEMPLATE_GZIP, False),
}
RAW, GZIP, PAIRS = "text", "text + gzip", "plain pairs"


def measure(case: RunCase) -> Iterator[Record]:
    for order, step in case.paper_steps:
        at = case.situation(order, step)
        text = case.text(at.full).encode()
        everything = at.anchors(dict(enumerate(at.full)), len(at.full))
        labels = {"order": order, "step": step}
        sizes = {RAW: len(text), GZIP: len(gzip.compress(text, 9, mtime=0))} | _sizes(case, everything)
        yield labels | {"condition": FULL} | sizes
        for name in (ANCHORS, PREFIX, SCATTERED, CLAIMED, DRAFT):
            yield labels | {"condition": name} | _sizes(case, CONDITIONS[name](at))


def _sizes(case: RunCase, anchors: AnchorSet) -> dict[str, int]:
    sizes = {name: case.size(anchors, codec, primed) for name, (codec, primed) in CODECS.items()}
    return {"sent": len(anchors), PAIRS: len(to_pairs(anchors, case.contract)), **sizes}


def tables(answers: Answers, about: About) -> Iterator[Table]:
    labels: dict[str, Label] = {"order": "order", "steps": ("step", about.share), "sent": "condition"}
    columns: dict[str, Column] = {"N": len, "tokens": "sent"}
    columns |= {codec: codec for codec in (*CODECS, PAIRS, RAW, GZIP)}
    note = (
        "Bytes of a whole payload: header, body, checksum. Text is the full answer, and plain pairs are "
        "position and id in whole bytes, both without any framing; the paper counts 100 to 400 bytes. "
        "The paper at 10%, 8 prompts: template + gzip 119, the full text's gzip 209."
    )
    yield answers.table("bytes", "Payload bytes (section 4.8)", labels, columns, note)


def widths(canvas: int, vocab_size: int) -> tuple[int, int]:
    """Whole bytes of a position and of an id: the fewest that hold every one."""
    position, id_ = (max(1, (highest.bit_length() + 7) // 8) for highest in (canvas - 1, vocab_size - 1))
    return position, id_


def to_pairs(anchors: AnchorSet, contract: Contract) -> bytes:
    """The pairs, little-endian, by position; 5 bytes each on a canvas of 512 with Qwen2.5's vocabulary."""
    position, id_ = widths(anchors.canvas, contract.vocab_size)
    pairs = zip(anchors.positions, anchors.ids, strict=True)
    return b"".join(p.to_bytes(position, "little") + t.to_bytes(id_, "little") for p, t in pairs)


def from_pairs(data: bytes, canvas: int, contract: Contract) -> dict[int, int]:
    """Ids by position. Raises ValueError for half a pair."""
    position, id_ = widths(canvas, contract.vocab_size)
    if len(data) % (position + id_):
        raise ValueError(f"expected pairs of {position + id_} bytes, found {len(data)} bytes")
    cuts = (data[at : at + position + id_] for at in range(0, len(data), position + id_))
    return {
        int.from_bytes(cut[:position], "little"): int.from_bytes(cut[position:], "little") for cut in cuts
    }


EXPERIMENT = phase("bytes", "Payload bytes", measure, tables)
