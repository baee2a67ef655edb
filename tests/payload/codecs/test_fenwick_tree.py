"""The Fenwick tree against plain sums."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from payload.codecs.fenwick_tree import FenwickTree

NUMBERS = st.lists(st.integers(0, 1 << 24), min_size=1, max_size=70)


@given(NUMBERS, NUMBERS, st.data())
def test_sums_are_those_of_the_list(begin: list[int], more: list[int], data: st.DataObject) -> None:
    origin = FenwickTree(begin)
    tree, numbers = origin.copy(), [*begin, *more]
    for number in more:
        tree.append(number)
    for index in data.draw(st.lists(st.integers(0, len(numbers) - 1), max_size=20)):
        numbers[index] = tree[index] = data.draw(st.integers(0, 1 << 24))
    sums = list(accumulate(numbers, initial=0))
    assert tree.numbers == numbers
    assert [tree.before(index) for index in range(len(numbers) + 1)] == sums
    assert tree.total == sums[-1]
    for index, (start, end) in enumerate(pairwise(sums)):
        if start < end:
            assert tree.find(start) == tree.find(end - 1) == index
    assert origin.numbers == begin, "a copy changes its origin"
    assert origin.total == sum(begin)
