"""Sums of a list of numbers that grows and changes: a Fenwick tree.

Responsible for a number's change, the sum before an index and the index at a sum, each in steps of the
logarithm of the list's size, so that time stays in proportion to a body's tokens, hostile ones too. Not
responsible for what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterable


class FenwickTree:
    """Numbers >= 0 by index. Node n holds the sum of the n & -n numbers that end before index n.

    numbers: to be read as a list, which is quickest, and changed by `append` and `tree[index] = number`.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self.numbers: list[int] = []
        self._nodes = [0]
        self.total = 0
        for number in numbers:
            self.append(number)

    def copy(self) -> FenwickTree:
        """Another tree of the same numbers."""
        other = FenwickTree()
        other.numbers, other._nodes, other.total = self.numbers.copy(), self._nodes.copy(), self.total
        return other

    def append(self, number: int) -> None:
        """Add a number at the end."""
        self.numbers.append(number)
        self.total += number
        nodes, node, step = self._nodes, len(self._nodes), 1
        while not node & step:
            number += nodes[node - step]
            step <<= 1
        nodes.append(number)

    def __setitem__(self, index: int, number: int) -> None:
        change = number - self.numbers[index]
        self.numbers[index] = number
        self.total += change
        nodes, node = self._nodes, index + 1
        while change and node < len(nodes):
            nodes[node] += change
            node += node & -node

    def before(self, index: int) -> int:
        """The sum of the numbers before an index."""
        nodes, total = self._nodes, 0
        while index:
            total += nodes[index]
            index &= index - 1
        return total

    def find(self, target: int) -> int:
        """The index whose number holds a target below the total: `before(i) <= target < before(i + 1)`."""
        nodes, index = self._nodes, 0
        step = 1 << len(self.numbers).bit_length()
        while step := step >> 1:
            if index + step < len(nodes) and nodes[index + step] <= target:
                index += step
                target -= nodes[index]
        return index
