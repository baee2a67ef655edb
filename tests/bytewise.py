"""A vocabulary and a model without weights, to test what a grammar does to any model's answer."""

from __future__ import annotations

from collections.abc import Sequence

from payload import Contract
from tests.edge_runtime.hash_engine import HashEngine

PIECES = (
    *('": "', '", "', '"}', '"]', '{"', ": ", ", ", "true", "null"),
    *(" the", "ing", "日本", "name", "12", "🙂"),
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


def hashed_model(seed: int = 0) -> HashEngine:
    """A model of that vocabulary that writes what no trained model would."""
    return HashEngine(seed, vocab=BytewiseTokens.size)
