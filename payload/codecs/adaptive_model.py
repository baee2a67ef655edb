"""The adaptive model of codec predictive: frequency counts of bucket, rank code and anchor flag.

Responsible for the distributions, in integers, their adaptation and coding with them. Not responsible for
rows or positions. The initial counts are part of the format (see `initial_counts`) and matter for the first
dozen tokens of a payload.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from payload.codecs.initial_counts import (
    INITIAL_FLAGS,
    INITIAL_MODES,
    INITIAL_MORE,
    INITIAL_RANKS,
    INITIAL_STABLE,
    INITIAL_UNRANKED,
    STEP,
)
from payload.codecs.question_counts import QUESTION_MODES, QUESTION_RANKS, QUESTION_STABLE
from payload.codecs.range_coder import Coder
from payload.codecs.rank_codes import BITS, BUCKETS, ESCAPE, TOP, RankCode

MAX_RANK_BITS = 24
"""Bit length of the highest rank that can be coded."""

Sizes = tuple[int, ...]
"""Counts of one distribution, in sixteenths of an occurrence; each at least 1."""


@dataclass(frozen=True)
class InitialCounts:
    """Counts that the distributions of a body begin with.

    stable:  [2]: the reader's own bucket, the bucket stated.
    modes:   [BUCKETS][2][MODES]: by bucket, and whether the mode before was another than TOP.
    ranks:   [modes by rank][pairs of buckets][bit lengths]: the first ones; the others begin with 1.
    flags:   [2][BUCKETS][2]: no anchor, an anchor; by shape (anchors anywhere, where the model is uncertain),
             for tokens coded by their rank among all.
    unranked: [2]: the same for tokens of another mode, in all buckets.
    more:    [2]: no more anchor, another one.
    """

    stable: Sizes
    modes: tuple[tuple[Sizes, Sizes], ...]
    ranks: tuple[tuple[Sizes, ...], ...]
    flags: tuple[tuple[Sizes, ...], tuple[Sizes, ...]]
    unranked: Sizes
    more: Sizes


FORMAT_COUNTS = InitialCounts(
    INITIAL_STABLE, INITIAL_MODES, INITIAL_RANKS, INITIAL_FLAGS, INITIAL_UNRANKED, INITIAL_MORE
)
"""The counts of the wire format."""

QUESTION_COUNTS = replace(FORMAT_COUNTS, stable=QUESTION_STABLE, modes=QUESTION_MODES, ranks=QUESTION_RANKS)
"""The same for the text of a question, which is less predictable than an answer."""


class Counts:
    """One adaptive distribution."""

    def __init__(self, initial: Sequence[int]) -> None:
        self._sizes = list(initial)

    def code(self, coder: Coder, value: int) -> int:
        value = coder.choice(value, self._sizes)
        self._sizes[value] += STEP
        return value

    def bits(self, value: int) -> float:
        """Bits that coding the value would take now."""
        return math.log2(sum(self._sizes) / self._sizes[value])


class AdaptiveModel:
    """The distributions of one body; each method codes a value, or reads one and returns it.

    uncertain: whether anchors are expected where the model is uncertain, rather than anywhere.
    """

    def __init__(self, coder: Coder, uncertain: bool, counts: InitialCounts = FORMAT_COUNTS) -> None:
        self._coder = coder
        self._stable = counts.stable
        self._modes = [[Counts(sizes) for sizes in pair] for pair in counts.modes]
        self._ranks = [
            [Counts([*sizes, *[1] * (MAX_RANK_BITS + 1 - len(sizes))]) for sizes in group]
            for group in counts.ranks
        ]
        self._flags = [
            [Counts(sizes) for sizes in counts.flags[uncertain]],
            [Counts(counts.unranked)] * BUCKETS,
        ]
        self._more = Counts(counts.more)
        self._after_miss = 0

    def bucket(self, value: int, stable: bool) -> int:
        """The confidence bucket: the reader's own where it is stable, else stated."""
        if self._coder.choice(int(not stable), self._stable) == 0:
            return value
        return self._coder.uniform(value, BUCKETS)

    def more(self, value: bool) -> bool:
        """The flag that announces another anchor."""
        return bool(self._more.code(self._coder, int(value)))

    def anchor(self, value: bool, bucket: int, by_rank: bool) -> bool:
        """The anchor flag of a token. by_rank: its code is its rank among all tokens."""
        return bool(self._flags[not by_rank][bucket].code(self._coder, int(value)))

    def rank_code(self, choices: Sequence[RankCode], bucket: int, tokens: int) -> RankCode:
        """The cheapest of a token's codes; `tokens` is the number of ids."""
        code = min(choices, key=lambda code: self._bits(code, bucket, tokens)) if choices else _TOP
        mode = self._modes[bucket][self._after_miss].code(self._coder, code.mode)
        self._after_miss = int(mode != TOP)
        if mode == TOP:
            return _TOP
        if mode == ESCAPE:
            return RankCode(ESCAPE, self._coder.uniform(code.residue, tokens), 0)
        residue = self._coder.uniform(code.residue, 1 << BITS[mode])
        size = self._ranks[mode - 1][bucket // 2].code(self._coder, code.rank.bit_length())
        if size < 2:
            return RankCode(mode, residue, size)
        below = 1 << (size - 1)
        return RankCode(mode, residue, below + self._coder.uniform(code.rank - below, below))

    def _bits(self, code: RankCode, bucket: int, tokens: int) -> float:
        bits = self._modes[bucket][self._after_miss].bits(code.mode)
        if code.mode == TOP:
            return bits
        if code.mode == ESCAPE:
            return bits + math.log2(tokens)
        size = code.rank.bit_length()
        return bits + BITS[code.mode] + self._ranks[code.mode - 1][bucket // 2].bits(size) + max(0, size - 1)


_TOP = RankCode(TOP, 0, 0)
