"""Codec compact: runs and ids of the anchors.

Body: canvas, length + 1 (0 where unknown), then runs of gaps and anchors, all varints.
"""

from __future__ import annotations

from collections.abc import Sequence

from payload.anchors import MAX_CANVAS, AnchorSet
from payload.bytesio import Reader, varint
from payload.contract import Contract
from payload.template import Shape


def encode(anchors: AnchorSet, prompt_ids: Sequence[int], base: AnchorSet | None) -> bytes:
    skip = set(base.positions) if base else set()
    fresh = [(p, t) for p, t in zip(anchors.positions, anchors.ids, strict=True) if p not in skip]
    out = bytearray(varint(anchors.canvas) + varint(0 if anchors.length is None else anchors.length + 1))
    previous = -1
    for position, token in fresh:
        out += varint(position - previous - 1) + varint(token)
        previous = position
    return bytes(out)


def decode(body: bytes, contract: Contract, prompt_ids: Sequence[int], base: AnchorSet | None) -> Shape:
    reader = Reader(body)
    canvas = reader.varint("canvas", MAX_CANVAS)
    length = reader.varint("length", MAX_CANVAS + 1)
    found = dict(zip(base.positions, base.ids, strict=True)) if base else {}
    position = -1
    while reader.left:
        position += 1 + reader.varint("gap", MAX_CANVAS)
        found[position] = reader.varint("id", contract.vocab_size - 1)
    positions = tuple(sorted(found))
    return positions, tuple(found[p] for p in positions), canvas, length - 1 if length else None
