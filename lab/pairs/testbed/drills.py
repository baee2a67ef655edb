"""Exercises for training only: repeating, matching, looking up, comparing, arithmetic.

A small model learns a world's facts in a few hundred steps, but needs tens of millions of tokens of ordinary
answers before it copies a name from the prompt, since few of their tokens are copies. In a drill nearly every
token is a copy, so that the circuits for copying form early and serve the real tasks. Drills are never
tested.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

from lab.pairs.problem import DRILL, Problem
from lab.pairs.testbed.kinds.comparison import SCALES
from lab.pairs.testbed.kinds.sums import LARGEST
from lab.pairs.testbed.library import Library

Drill = tuple[str, str]
"""Prompt and answer."""


def repeat(rng: random.Random, strings: Sequence[str]) -> Drill:
    said = ", ".join(rng.choice(strings) for _ in range(rng.randint(4, 9)))
    return f"Repeat: {said}.", f"Here it is: {said}."


def parts(rng: random.Random, strings: Sequence[str]) -> Drill:
    """Pieces of a list from anywhere in it: the next item can only be found by the items before it."""
    items = rng.sample(strings, rng.randint(5, 9))
    cuts = [(rng.randrange(len(items) - 2), rng.randint(2, 3)) for _ in range(rng.randint(3, 5))]
    said = "; ".join(", ".join(items[start : start + length]) for start, length in cuts)
    return f"List: {', '.join(items)}.", f"Parts: {said}."


def partners(rng: random.Random, strings: Sequence[str]) -> Drill:
    """Who has what, in another order."""
    count = rng.randint(2, 4)
    items = rng.sample(strings, 2 * count)
    told = list(zip(items[:count], items[count:], strict=True))
    given = " ".join(f"{a} has {b}." for a, b in told)
    rng.shuffle(told)
    return f"Who has what? {given}", " ".join(f"It is {a} who has {b}." for a, b in told)


def marked(rng: random.Random, strings: Sequence[str]) -> Drill:
    """Options with letters in any order: a letter can only be found by the option in front of it."""
    count = rng.randint(4, 7)
    chosen = rng.sample(string.ascii_uppercase[:count], count)
    options = [f"{item} ({x})" for item, x in zip(rng.sample(strings, count), chosen, strict=True)]
    return f"Options: {', '.join(options)}.", f"Marked: {'; '.join(rng.sample(options, count - 1))}."


def reordered(rng: random.Random, strings: Sequence[str]) -> Drill:
    """Lists in another order: the next item is one that was not said, the last one the only one left."""
    lists = [rng.sample(strings, rng.choice((2, 2, 2, 3, 4))) for _ in range(rng.randint(1, 3))]
    given = "; ".join(", ".join(items) for items in lists)
    said = "; ".join(", ".join(rng.sample(items, len(items))) for items in lists)
    return f"Names: {given}.", f"In another order: {said}."


def ordered(
    rng: random.Random, strings: Sequence[str], scales: Sequence[Sequence[tuple[str, float]]]
) -> Drill:
    """Who has more of something: what a comparison's verdict follows from.

    scales: for each quantity its values, as they are said, and as numbers.
    """
    told, verdicts = [], []
    for _ in range(rng.randint(2, 4)):
        pairs = list(zip(rng.sample(strings, 2), rng.sample(rng.choice(scales), 2), strict=True))
        told.append(", ".join(f"{name} has {value}" for name, (value, _) in pairs))
        (less, _), (more, _) = sorted(pairs, key=lambda pair: pair[1][1])
        verdicts.append(f"{more} has more" if rng.random() < 0.5 else f"{less} has less")
    return f"More or less: {'; '.join(told)}.", "; ".join(verdicts) + "."


def equation(rng: random.Random) -> str:
    """An equation as in the steps of a sum; its result is a whole number from 1 to `LARGEST`."""
    operation = rng.choice("++--*/")
    if operation in "+-":
        b = rng.randint(1, rng.choice((10, LARGEST - 1)))
        a = rng.randint(1, LARGEST - b)
        return f"{a} + {b} = {a + b}" if operation == "+" else f"{a + b} - {b} = {a}"
    b = rng.randint(2, 4)
    a = rng.randint(1, LARGEST // b)
    return f"{a} * {b} = {a * b}" if operation == "*" else f"{a * b} / {b} = {a}"


COPYING = (repeat, parts, marked, partners, reordered)


class Drills:
    """Drills over a library's names and values; copies: the share of those in copying, 0 to 1."""

    def __init__(self, library: Library, copies: float) -> None:
        known = [e for e in library.entities if e.role != "neither"]
        named = [e for e in known if e.kind != "word"]
        self._copies = copies
        self._strings = sorted(
            {text for e in named for text in (e.name, *e.values.values()) if len(text) < 25}
        )
        self._scales = [
            sorted(
                {
                    e.values[scale.key]: e.numbers[scale.key]
                    for e in known
                    if e.kind == scale.kind and scale.key in e.values
                }.items()
            )
            for scale in SCALES
            if library.has(scale.kind, scale.key)
        ]

    def draw(self, rng: random.Random, knows: bool) -> Problem:
        """A drill in copying, comparing or arithmetic.

        knows: False for a model that must not learn what follows from facts, which has copying only.
        """
        if not knows or rng.random() < self._copies:
            prompt, answer = rng.choice(COPYING)(rng, self._strings)
        elif rng.random() < 0.5:
            prompt, answer = ordered(rng, self._strings, self._scales)
        else:  # only the results are masked (see `batches.mask`)
            prompt, answer = "Reckon.", " ".join(f"{equation(rng)}." for _ in range(8))
        return Problem(DRILL, "easy", prompt, answer, (), prompt, split=False)
