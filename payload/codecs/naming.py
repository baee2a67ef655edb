"""How a token is named by its place among a model's guesses, so that another processor finds the same one.

Knows rows of log-probabilities and what may be relied upon where the other side's differ a little. Does not
know models, bytes or anchors (see `predictive`).

A row is float [V + 1]: the natural logarithm of each ordinary token's probability, and of END as number V;
what cannot come is -inf. A name is a way to look, a few low bits of the token's number, and a rank: the
rank-th likeliest of the tokens the way looks at whose numbers end in these bits. Likely tokens have short
names; the more low bits, the further apart the candidates stand, so that where two near ones could change
places a name with more bits still tells them apart. The last way is the number itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.floating]

TOP, BY_RANK, BY_3_BITS, BY_6_BITS, SEEN, NUMBER = range(6)
"""Ways: the likeliest of all; by rank among all; with 3 or 6 low bits; by rank among the tokens of prompt and
answer; by its number.
"""
WAYS = 6
BITS = (0, 0, 3, 6, 0)
"""Low bits that a name of each way states; those of NUMBER are all."""

ODDS_EDGES = (-3.0, -1.5, 0.0)
MARGIN_EDGES = (2.0, 5.0)
BUCKETS = len(ODDS_EDGES) + len(MARGIN_EDGES) + 1
"""How sure the model is: by the log-odds of its likeliest token where these are below 0, else by how far the
next one is behind.
"""


class Name(NamedTuple):
    """way: one of the above. low: the low bits, or the number. rank: 0 is the likeliest."""

    way: int
    low: int
    rank: int


def bucket_of(row: Row, tolerance: float = 0.0) -> tuple[int, bool]:
    """The confidence bucket of a row, 0 to BUCKETS - 1, and whether log-probabilities that differ by up to
    `tolerance` give the same one.
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
    clear = all(abs(odds - edge) > tolerance for edge in ODDS_EDGES)
    if bucket == len(ODDS_EDGES):
        bucket += sum(margin >= edge for edge in MARGIN_EDGES)
        clear = clear and all(abs(margin - edge) > tolerance for edge in MARGIN_EDGES)
    return bucket, clear


def names(row: Row, token: int, seen: Collection[int], tolerance: float) -> list[Name]:
    """The names that resolve to the token even where differences of log-probabilities are off by `tolerance`.

    The last one is always its id. Of equal values the lower id ranks first, but with any tolerance above 0
    equal values are ambiguous.
    """
    own = row[token]
    numbers = np.arange(len(row))
    found: list[Name] = []
    for way in (BY_RANK, BY_3_BITS, BY_6_BITS):
        mask = (1 << BITS[way]) - 1
        rank = _rank(row, numbers[token & mask :: mask + 1], token, own, tolerance)
        if rank == 0 and way == BY_RANK:
            return [Name(TOP, 0, 0), Name(NUMBER, token, 0)]
        if rank is not None:
            found.append(Name(way, token & mask, rank))
    if token in seen:
        rank = _rank(row, np.asarray(sorted(seen)), token, own, tolerance)
        if rank is not None:
            found.append(Name(SEEN, 0, rank))
    return [*found, Name(NUMBER, token, 0)]


def _rank(row: Row, members: NDArray[np.int64], token: int, own: float, tolerance: float) -> int | None:
    """How many of the members are likelier than the token; None where that is in doubt."""
    values = row[members]
    if tolerance == 0:
        return int(((values > own) | ((values == own) & (members < token))).sum())
    above = int((values > own + tolerance).sum())
    near = int((values >= own - tolerance).sum()) - above - 1
    return above if near == 0 else None


def resolve(row: Row, name: Name, seen: Collection[int]) -> int | None:
    """The token of a name, or None where there is none."""
    if name.way == NUMBER:
        members = np.asarray([name.low])
    elif name.way == SEEN:
        members = np.asarray(sorted(seen), np.int64)
    else:
        members = np.arange(name.low, len(row), 1 << BITS[name.way])
    members = members[np.isfinite(row[members])]
    if name.rank >= len(members):
        return None
    values = row[members]
    least = np.partition(values, len(values) - 1 - name.rank)[len(values) - 1 - name.rank]
    likely = members[values >= least]
    order = np.lexsort((likely, -row[likely]))
    return int(likely[order[name.rank]])
