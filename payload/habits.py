"""How often which kind of name, rank and anchor comes: what codec predictive believes at first, and learns.

Knows counts in integers, and codes with them. Does not know rows or positions. The first counts are part of
the format (SPEC.md): they were taken from training prompts of the tiny pair, and matter for the first dozen
tokens of a payload.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from payload.naming import BITS, BUCKETS, NUMBER, TOP, Name
from payload.rangecoder import Coder

STEP = 16
"""What one occurrence adds to its count, so that the first counts can be fractions of one."""

MAX_CLASS = 24
"""Bit length of the highest rank that can be named."""

_CLEAR = (250, 6)
# fmt: off
_WAYS = (
    ((1, 1, 26, 358, 1, 1), (1, 1, 22, 362, 1, 1)),
    ((34, 1, 291, 29, 28, 3), (34, 1, 254, 8, 89, 1)),
    ((247, 411, 216, 23, 239, 15), (96, 131, 42, 7, 108, 1)),
    ((231, 115, 20, 3, 15, 1), (204, 131, 21, 1, 28, 1)),
    ((986, 96, 4, 17, 50, 1), (315, 28, 3, 3, 31, 3)),
    ((1148, 1, 2, 1, 1, 1), (1093, 1, 2, 3, 54, 1)),
)
_RANKS = (
    ((1, 212, 138, 27, 3, 1, 1, 1), (1, 219, 143, 22, 1, 1, 1, 1), (1, 199, 127, 46, 11, 1, 1, 1)),
    ((188, 97, 56, 39, 1, 1, 3, 1), (236, 51, 33, 25, 34, 4, 1, 1), (272, 44, 53, 10, 3, 1, 1, 1)),
    ((237, 107, 36, 1, 1, 1, 1, 1), (85, 72, 217, 2, 2, 3, 2, 2), (222, 69, 64, 1, 1, 23, 1, 1)),
    ((168, 128, 18, 21, 18, 32, 1, 1), (67, 40, 43, 79, 51, 98, 6, 1), (31, 40, 78, 131, 84, 20, 1, 1)),
)
_FLAGS = (
    ((40, 8), (40, 8), (40, 8), (40, 8), (40, 8), (40, 8)),
    ((1, 1), (1, 384), (1, 384), (4, 380), (1152, 1), (1152, 1)),
)
_GUESSED = (1, 1152)
_MORE = (16, 48)
# fmt: on


class Counts:
    """One adaptive distribution."""

    def __init__(self, first: Sequence[int]) -> None:
        self._sizes = list(first)

    def code(self, coder: Coder, value: int) -> int:
        value = coder.choice(value, self._sizes)
        self._sizes[value] += STEP
        return value

    def bits(self, value: int) -> float:
        """What coding it would cost now."""
        return math.log2(sum(self._sizes) / self._sizes[value])


class Habits:
    """The distributions of one body; each method codes a value, or reads one and returns it.

    doubtful: whether anchors are expected where the model doubts, rather than anywhere.
    """

    def __init__(self, coder: Coder, doubtful: bool) -> None:
        self._coder = coder
        self._ways = [[Counts(first) for first in pair] for pair in _WAYS]
        self._ranks = [
            [Counts([*first, *[1] * (MAX_CLASS + 1 - len(first))]) for first in group] for group in _RANKS
        ]
        self._flags = [
            [Counts(first) for first in _FLAGS[doubtful]],
            [Counts(_GUESSED)] * BUCKETS,
        ]
        self._more = Counts(_MORE)
        self._lapsed = 0

    def bucket(self, value: int, clear: bool) -> int:
        """How sure the model is; told where the reader may see it differently, else `value` is taken."""
        if self._coder.choice(int(not clear), _CLEAR) == 0:
            return value
        return self._coder.uniform(value, BUCKETS)

    def more(self, value: bool) -> bool:
        """Whether there is another anchor."""
        return bool(self._more.code(self._coder, int(value)))

    def anchor(self, value: bool, bucket: int, certain: bool) -> bool:
        """Whether a token that the model may have written itself is an anchor."""
        return bool(self._flags[not certain][bucket].code(self._coder, int(value)))

    def name(self, choices: Sequence[Name], bucket: int, tokens: int) -> Name:
        """The cheapest of a token's names; `tokens` is how many numbers there are."""
        told = min(choices, key=lambda name: self._bits(name, bucket, tokens)) if choices else Name(TOP, 0, 0)
        way = self._ways[bucket][self._lapsed].code(self._coder, told.way)
        self._lapsed = int(way != TOP)
        if way == TOP:
            return Name(TOP, 0, 0)
        if way == NUMBER:
            return Name(NUMBER, self._coder.uniform(told.low, tokens), 0)
        low = self._coder.uniform(told.low, 1 << BITS[way])
        size = self._ranks[way - 1][bucket // 2].code(self._coder, told.rank.bit_length())
        if size < 2:
            return Name(way, low, size)
        below = 1 << (size - 1)
        return Name(way, low, below + self._coder.uniform(told.rank - below, below))

    def _bits(self, name: Name, bucket: int, tokens: int) -> float:
        bits = self._ways[bucket][self._lapsed].bits(name.way)
        if name.way == TOP:
            return bits
        if name.way == NUMBER:
            return bits + math.log2(tokens)
        size = name.rank.bit_length()
        return bits + BITS[name.way] + self._ranks[name.way - 1][bucket // 2].bits(size) + max(0, size - 1)
