"""A vocabulary small enough to write down: every byte, and some pieces of text.

Its tokenizer takes the longest piece that fits, from left to right. Like a real one it does not always give
back the ids that a text was made of.
"""

from __future__ import annotations

from payload import Contract

PIECES = [
    *(bytes([byte]) for byte in range(256)),
    *(
        piece.encode()
        for piece in (
            "ab abc bc th the  the  an and  and in ing er re on or  a  b  c  d  e  s  t  w  o "
            "\n\n 10 20 is  is  of  to  in  answer  number  town  river  mayor é ü 中 文 Anna "
        ).split(" ")
        if len(piece.encode()) > 1
    ),
    b" the",
    b" answer",
    b" is",
    b" of",
    "é".encode()[1:] + b"x",
    b"a\0b",
    b"",
]


class ToyTokens:
    """The `TokenBytes` of PIECES; pieces that are empty or hold a NUL byte are never produced by `encode`."""

    def __init__(self, pieces: list[bytes] | None = None) -> None:
        self.pieces = PIECES if pieces is None else pieces
        self._ids = {piece: id for id, piece in reversed(list(enumerate(self.pieces))) if piece}
        self._longest = max(map(len, self.pieces))

    def token_bytes(self, id: int) -> bytes:
        return self.pieces[id]

    def encode(self, text: str) -> list[int]:
        data = text.encode("utf-8")
        ids, at = [], 0
        while at < len(data):
            size = next(n for n in range(self._longest, 0, -1) if data[at : at + n] in self._ids)
            ids.append(self._ids[data[at : at + size]])
            at += len(data[at : at + size])
        return ids


def contract(vocab_size: int = len(PIECES), name: str = "a") -> Contract:
    """A contract without a tokenizer behind it."""
    special = {"<|endoftext|>": vocab_size, "<|im_start|>": vocab_size + 1, "<|im_end|>": vocab_size + 2}
    return Contract(vocab_size, name * 64, special, "0" * 64)
