"""Rank codes: a token named by its rank among a model's predictions, robust to small numeric differences.

Responsible for the codes a token has, for the token of a code and for the confidence bucket of a row. Not
responsible for models, bytes or anchors (see `predictive`).

A row is float [V + 1]: the natural logarithm of each ordinary token's probability, and of END as id V;
what cannot occur is -inf. A code is a mode, a residue (some low bits of the id) and a rank: the token is the
one of that rank, by probability, among the ids of the mode that have this residue. Likely tokens have short
codes. The more low bits a mode fixes, the fewer ids compete and the further apart their log-probabilities
are, so that where two neighbours could swap ranks on another processor a code with more bits is still
unambiguous. The escape mode states the id itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.floating]

TOP, RANK, RANK_MOD_8, RANK_MOD_64, RANK_SEEN, ESCAPE = range(6)
"""Modes: the likeliest id; by rank among all; among the ids with the same 3 or 6 low bits; among the tokens
of prompt and answer; the id itself.
"""
MODES = 6
BITS = (0, 0, 3, 6, 0)
"""Low bits that a code of each mode states; ESCAPE states all."""

ODDS_EDGES = (-3.0, -1.5, 0.0)
MARGIN_EDGES = (2.0, 5.0)
BUCKETS = len(ODDS_EDGES) + len(MARGIN_EDGES) + 1
"""Confidence buckets: by the log-odds of the likeliest token where these are below 0, else by its margin over
the second.
"""


class RankCode(NamedTuple):
    """mode: one of the above. residue: the low bits, or the id of an escape. rank: 0 is the likeliest."""

    mode: int
    residue: int
    rank: int


def confidence_bucket(row: Row, tolerance: float = 0.0) -> tuple[int, bool]:
    """The confidence bucket of a row, 0 to BUCKETS - 1, and whether it is stable: the same for every row
    whose differences of log-probabilities are off by at most `tolerance`.
    """
    top = int(row.argmax())
    others = row.astype(np.float64)
    others[top] = -np.inf
    second = float(others.max())
    if second == -np.inf:
        return BUCKETS - 1, True
    margin = float(row[top]) - second
    odds = margin - math.log(float(np.exp(others - second).sum()))
    bucket = sum(odds >= edge for edge in ODDS_EDGES)
    stable = all(abs(odds - edge) > tolerance for edge in ODDS_EDGES)
    if bucket == len(ODDS_EDGES):
        bucket += sum(margin >= edge for edge in MARGIN_EDGES)
        stable = stable and all(abs(margin - edge) > tolerance for edge in MARGIN_EDGES)
    return bucket, stable


def rank_codes(row: Row, token: int, seen: Collection[int], tolerance: float) -> list[RankCode]:
    """The codes of a token that stay valid where differences of log-probabilities are off by `tolerance`.

    seen: the tokens of prompt and answer so far. The last code is always the escape. Of equal values the
    lower id ranks first, but with any tolerance above 0 equal values are ambiguous.
    """
    own = row[token]
    ids = np.arange(len(row))
    codes: list[RankCode] = []
    for mode in (RANK, RANK_MOD_8, RANK_MOD_64):
        mask = (1 << BITS[mode]) - 1
        rank = _rank(row, ids[token & mask :: mask + 1], token, own, tolerance)
        if rank == 0 and mode == RANK:
            return [RankCode(TOP, 0, 0), RankCode(ESCAPE, token, 0)]
        if rank is not None:
            codes.append(RankCode(mode, token & mask, rank))
    if token in seen:
        rank = _rank(row, np.asarray(sorted(seen)), token, own, tolerance)
        if rank is not None:
            codes.append(RankCode(RANK_SEEN, 0, rank))
    return [*codes, RankCode(ESCAPE, token, 0)]


def _rank(row: Row, members: NDArray[np.int64], token: int, own: float, tolerance: float) -> int | None:
    """The number of members likelier than the token; None where that is ambiguous."""
    values = row[members]
    if tolerance == 0:
        return int(((values > own) | ((values == own) & (members < token))).sum())
    above = int((values > own + tolerance).sum())
    near = int((values >= own - tolerance).sum()) - above - 1
    return above if near == 0 else None


def token_of(row: Row, code: RankCode, seen: Collection[int]) -> int | None:
    """The token of a code, or None where there is none."""
    if code.mode == ESCAPE:
        members = np.asarray([code.residue])
    elif code.mode == RANK_SEEN:
        members = np.asarray(sorted(seen), np.int64)
    else:
        members = np.arange(code.residue, len(row), 1 << BITS[code.mode])
    members = members[np.isfinite(row[members])]
    if code.rank >= len(members):
        return None
    values = row[members]
    least = np.partition(values, len(values) - 1 - code.rank)[len(values) - 1 - code.rank]
    likely = members[values >= least]
    order = np.lexsort((likely, -row[likely]))
    return int(likely[order[code.rank]])
