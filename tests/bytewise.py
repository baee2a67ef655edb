"""A vocabulary and a model without weights, to measure what a grammar does to any model's answer.

Responsible for a model whose tokens are drawn by a hash of what is before them: an opponent that writes what
no trained model would. Not responsible for grammars.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from edge_runtime.engine.base import Engine, Logits
from payload import Contract

PIECES = (
    '": "',
    '", "',
    '"}',
    '"]',
    '{"',
    ": ",
    ", ",
    "true",
    "null",
    " the",
    "ing",
    "日本",
    "name",
    "12",
    "🙂",
)
SIZE = 256 + len(PIECES)
SPECIAL = {"<|endoftext|>": SIZE, "<|im_start|>": SIZE + 1, "<|im_end|>": SIZE + 2}
CONTRACT = Contract(SIZE, "0" * 64, SPECIAL, "1" * 64)


class BytewiseTokens:
    """Single bytes, some longer pieces, and three special tokens; `grammar.matcher.Tokens`."""

    size = SIZE + len(SPECIAL)

    def __init__(self) -> None:
        self._pieces = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in PIECES]
        self._pieces += [name.encode() for name in SPECIAL]
        self._longest = sorted(range(256, SIZE), key=lambda id_: -len(self._pieces[id_]))

    def token_bytes(self, id: int) -> bytes:
        return self._pieces[id]

    def encode_bytes(self, data: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(data):
            id_ = next((i for i in self._longest if data.startswith(self._pieces[i], at)), data[at])
            ids.append(id_)
            at += len(self._pieces[id_])
        return ids

    def decode(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self.token_bytes, ids))


class HashedModel(Engine):
    """float32[vocab] logits by a hash of the prefix; counts its passes."""

    def __init__(self, seed: int = 0, context: int = 4096) -> None:
        super().__init__(context=context, vocab=SIZE + len(SPECIAL))
        self.seed = seed
        self.passes = 0

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        self.passes += 1
        text = [*self.tokens, *ids]
        wanted = [self._logits(text[: self.length + row + 1]) for row in rows]
        return np.stack(wanted) if wanted else np.empty((0, self.vocab), np.float32)

    def _logits(self, prefix: Sequence[int]) -> Logits:
        state = zlib.crc32(np.asarray([self.seed, *prefix], np.int64).tobytes())
        return np.random.default_rng(state).standard_normal(self.vocab).astype(np.float32)
