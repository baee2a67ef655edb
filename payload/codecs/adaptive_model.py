"""How often which kind of name, rank and anchor comes: what codec predictive believes at first, and learns.

Knows counts in integers, and codes with them. Does not know rows or positions. The first counts are part of
the format (`habit_counts`), and matter for the first dozen tokens of a payload.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from payload.codecs import adaptive_counts
from payload.codecs.adaptive_counts import STEP
from payload.codecs.naming import BITS, BUCKETS, NUMBER, TOP, Name
from payload.codecs.range_coder import Coder

MAX_CLASS = 24
"""Bit length of the highest rank that can be named."""


Sizes = tuple[int, ...]
"""Counts of one distribution, in sixteenths of an occurrence; each at least 1."""


@dataclass(frozen=True)
class InitialCounts:
    """Counts with which the distributions of a body begin.

    clear:   static distribution of whether the bucket is unambiguous. guessed, more: as `AdaptiveModel` uses.
    ways:    by bucket and by whether the last token needed a name.
    ranks:   rank classes, by way and by pair of buckets.
    flags:   [0] where anchors may be anywhere, [1] where they are expected at doubtful positions; by bucket.
    """

    clear: Sizes
    ways: tuple[tuple[Sizes, Sizes], ...]
    ranks: tuple[tuple[Sizes, ...], ...]
    flags: tuple[tuple[Sizes, ...], tuple[Sizes, ...]]
    guessed: Sizes
    more: Sizes


FORMAT_COUNTS = InitialCounts(
    adaptive_counts.CLEAR,
    adaptive_counts.FIRST_WAYS,
    adaptive_counts.FIRST_RANKS,
    adaptive_counts.FIRST_FLAGS,
    adaptive_counts.FIRST_GUESSED,
    adaptive_counts.FIRST_MORE,
)
"""The counts of the wire format."""


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


class AdaptiveModel:
    """The distributions of one body; each method codes a value, or reads one and returns it.

    doubtful: whether anchors are expected where the model doubts, rather than anywhere.
    """

    def __init__(self, coder: Coder, doubtful: bool, counts: InitialCounts = FORMAT_COUNTS) -> None:
        self._coder = coder
        self._clear = counts.clear
        self._ways = [[Counts(first) for first in pair] for pair in counts.ways]
        self._ranks = [
            [Counts([*first, *[1] * (MAX_CLASS + 1 - len(first))]) for first in group]
            for group in counts.ranks
        ]
        self._flags = [
            [Counts(first) for first in counts.flags[doubtful]],
            [Counts(counts.guessed)] * BUCKETS,
        ]
        self._more = Counts(counts.more)
        self._lapsed = 0

    def bucket(self, value: int, clear: bool) -> int:
        """How sure the model is; told where the reader may see it differently, else `value` is taken."""
        if self._coder.choice(int(not clear), self._clear) == 0:
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
