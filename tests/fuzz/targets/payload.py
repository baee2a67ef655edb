"""Payloads of every codec: what a device decodes.

The first byte says how the rest is used: as a payload, or as flags, optional fields and a body that are
sealed with a right check, so that the codec behind it is reached. `PayloadTarget.kt` reads the same inputs in
the same way.

    1 the large vocabulary   2 with a prompt   4 sealed   16, 24 codec compact, predictive
    32 fields as they are    64 with fields    128 a delta
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from payload import AnchorSet, Base, Codec, PayloadError, Shared, decode, peek
from payload.header import seal
from tests.vectors.toy_vocabulary import ToyTokens, contract

ALLOWED = (PayloadError,)
INSTRUMENTED = ("payload",)
MAX_BYTES = 128
"""Many inputs in the time of one long one; those are `payload_long`'s."""

MOST_PREDICTIVE = 12
"""Bytes of a predictive body: each codes up to 64 positions, and each of them takes a pass."""

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
TOY = contract()
QWEN = contract(151_643, "c")
TOKENS = ToyTokens()
PROMPT = [3838, 374, 279, 6722, 315, 9625, 30]


class TableModel:
    """A quick `payload.Predictor`: sixteen rows, by the length of the text."""

    identity = b"t" * 32
    prompt_ids: Sequence[int] = (1, 2)

    def __init__(self) -> None:
        rows = np.random.default_rng(1).normal(0, 3, (16, TOY.vocab_size + 1))
        self._rows = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)

    def read(self, text: Sequence[int], start: int) -> Iterator[np.ndarray]:
        return (self._rows[position % 16] for position in range(start, len(text) + 1))


MODEL = TableModel()
BASES = {each.identity: Base(b"base", AnchorSet((0, 1, 5), (7, 8, 9), 64, each)) for each in (TOY, QWEN)}


def shared_of(how: int) -> Shared:
    """What an input is read with; codec predictive has the small vocabulary, and its model's prompt."""
    base = how & 128 and how & 16
    if how & 28 == 28:
        return Shared(TOY, MODEL.prompt_ids, TOKENS, BASES[TOY.identity] if base else None, MODEL)
    reader, prompt = QWEN if how & 1 else TOY, PROMPT if how & 2 else None
    return Shared(reader, prompt, TOKENS, BASES[reader.identity] if base else None)


def payload_of(how: int, data: bytes) -> bytes:
    """The bytes that an input is read as."""
    if not how & 4:
        return data
    shared, codec = shared_of(how), Codec(how >> 3 & 3 if how & 16 else 0)
    adapts, predictive = how & 16, codec is Codec.PREDICTIVE
    body = data[1:][: MOST_PREDICTIVE if predictive else None]
    extras = b"" if not how & 64 else data[:1] if how & 32 else bytes([(data or b"\0")[0] % 15 + 1])
    return seal(
        shared.contract,
        codec,
        body,
        extras,
        prompt_ids=shared.prompt_ids if adapts else None,
        base=shared.base,
        fingerprint=MODEL.identity if predictive else None,
    )


def run(data: bytes) -> None:
    if not data:
        return
    how, data = data[0], payload_of(data[0], data[1:])
    peek(data)
    decode(data, shared_of(how))


def seeds() -> list[bytes]:
    """Payloads of the vectors, and their bodies to be sealed again."""
    rows = json.loads((VECTORS / "payload_vectors.json").read_text())["vectors"]
    raw = [bytes.fromhex(row["payload"]) for row in rows]
    sealed = [bytes([4 | data[0] & 24 | (data[0] & 1) << 6]) + data[4:] for data in raw if len(data) > 4]
    return [b"\0" + data for data in raw] + sealed
