"""The benchmark of turns: what it times is what a session does."""

from __future__ import annotations

from lab.benches.second_turn import times
from tests.edge_runtime.test_session import runtime


def test_only_the_kept_cache_saves_passes() -> None:
    edge, engine = runtime()
    rows = times(edge, turns=3, repeat=1, tokens=6)
    assert [row["turn"] for row in rows] == [1, 2, 3]
    lengths = [row["tokens of the prompt"] for row in rows]
    assert lengths == sorted(lengths)
    # Two rounds: each turn is run once anew, and once from where the turn before it has left the cache.
    assert 2 * sum(lengths) < engine.ran < 3 * sum(lengths) + 2 * lengths[0]
