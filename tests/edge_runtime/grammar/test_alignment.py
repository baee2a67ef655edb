"""The places of anchors in a text with a grammar."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.grammar.alignment import AnchorQueue
from payload import AnchorSet
from tests.bytewise import CONTRACT


def queue(places: dict[int, int], window: int = 4) -> AnchorQueue:
    return AnchorQueue(AnchorSet.of(places, 64, CONTRACT), window)


def written(found: AnchorQueue, allowed: Callable[[int, int], bool], end: int = 64) -> dict[int, int]:
    """Ids by the position that they are written at."""
    places = {}
    for at in range(end):
        id_ = found.next(at, lambda id_, at=at: allowed(at, id_))
        if id_ is not None:
            places[at] = id_
            found.took(at)
    found.end()
    return places


def test_what_is_allowed_stays_at_its_place() -> None:
    found = queue({3: 1, 4: 2, 9: 3})
    assert written(found, lambda at, id_: True) == {3: 1, 4: 2, 9: 3}
    assert (found.realigned, found.dropped) == (0, 0)


def test_what_waits_moves_all_behind_it() -> None:
    found = queue({3: 1, 4: 2, 9: 3})
    assert written(found, lambda at, id_: at >= 5) == {5: 1, 6: 2, 11: 3}
    assert (found.realigned, found.dropped, found.shift) == (3, 0, 2)


def test_a_run_waits_together() -> None:
    found = queue({3: 1, 4: 2})
    assert written(found, lambda at, id_: id_ == 2 or at >= 6) == {6: 1, 7: 2}


def test_another_run_takes_over_and_the_order_is_kept() -> None:
    found = queue({3: 1, 4: 2, 6: 3, 7: 4})
    assert written(found, lambda at, id_: id_ > 2) == {6: 3, 7: 4}
    assert (found.realigned, found.dropped) == (0, 2)


def test_what_is_never_allowed_is_dropped_after_the_window() -> None:
    found = queue({3: 1, 4: 2}, window=4)
    assert written(found, lambda at, id_: id_ == 2) == {7: 2}
    assert (found.realigned, found.dropped) == (1, 1)


@given(
    st.dictionaries(st.integers(0, 63), st.integers(0, 9), max_size=30),
    st.sets(st.tuples(st.integers(0, 63), st.integers(0, 9))),
    st.integers(1, 64),
)
def test_every_anchor_is_written_or_dropped_in_order(
    places: dict[int, int], forbidden: set[tuple[int, int]], end: int
) -> None:
    found = queue(places)
    text = written(found, lambda at, id_: (at, id_) not in forbidden, end)
    assert len(text) + found.dropped == len(places)
    assert not any((at, id_) in forbidden for at, id_ in text.items())
    in_order = iter(places[at] for at in sorted(places))
    assert all(any(id_ == each for each in in_order) for id_ in text.values())
