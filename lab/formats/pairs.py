"""Anchors as plain (position, id) pairs, as section 3.1 counts them: a codec to measure others against.

Not a codec of the wire: it has no header, no check, no length of the answer, and payloads are never sent in
it.
"""

from __future__ import annotations

from payload.anchors import AnchorSet
from payload.contract import Contract


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
    """Ids by position, of whole pairs."""
    position, id_ = widths(canvas, contract.vocab_size)
    cuts = (data[at : at + position + id_] for at in range(0, len(data), position + id_))
    return {
        int.from_bytes(cut[:position], "little"): int.from_bytes(cut[position:], "little") for cut in cuts
    }
