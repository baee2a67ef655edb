"""Exercises for training only: copying names and values, comparing values, and reckoning.

They serve the circuits that answers need (see `lab.pairs.tiny.drills`), and are never tested.
"""

from __future__ import annotations

import random
import string

from lab.pairs.problem import Problem
from lab.pairs.testbed.kinds.comparison import SCALES
from lab.pairs.testbed.kinds.sums import LARGEST
from lab.pairs.testbed.library import Library
from lab.pairs.tiny import drills

_SUMS = 8


def _strings(library: Library) -> list[str]:
    """Names and values of everything that is trained on."""
    known = [e for e in library.entities if e.role != "neither" and e.kind != "word"]
    return sorted({text for e in known for text in (e.name, *e.values.values()) if len(text) < 25})


def _options(rng: random.Random, strings: list[str]) -> tuple[str, str]:
    """Options with letters in any order: a letter can only be found by the option in front of it."""
    count = rng.randint(4, 7)
    letters = rng.sample(string.ascii_uppercase[:count], count)
    options = [f"{item} ({x})" for item, x in zip(rng.sample(strings, count), letters, strict=True)]
    return f"Options: {', '.join(options)}.", f"Marked: {'; '.join(rng.sample(options, count - 1))}."


def _repeat(rng: random.Random, strings: list[str]) -> tuple[str, str]:
    items = ", ".join(rng.choice(strings) for _ in range(rng.randint(4, 9)))
    return f"Repeat: {items}.", f"Here it is: {items}."


def _others(rng: random.Random, strings: list[str]) -> tuple[str, str]:
    """Lists in another order: the next item is one that was not said, the last one the only one left."""
    lists = [rng.sample(strings, rng.choice((2, 2, 2, 3, 4))) for _ in range(rng.randint(1, 3))]
    given = "; ".join(", ".join(items) for items in lists)
    said = "; ".join(", ".join(rng.sample(items, len(items))) for items in lists)
    return f"Names: {given}.", f"In another order: {said}."


def _partners(rng: random.Random, strings: list[str]) -> tuple[str, str]:
    """Who has what, in another order."""
    count = rng.randint(2, 4)
    items = rng.sample(strings, 2 * count)
    pairs = list(zip(items[:count], items[count:], strict=True))
    given = " ".join(f"{a} has {b}." for a, b in pairs)
    rng.shuffle(pairs)
    return f"Who has what? {given}", " ".join(f"It is {a} who has {b}." for a, b in pairs)


def _spans(rng: random.Random, strings: list[str]) -> tuple[str, str]:
    """Pieces of a list from anywhere in it: the next item can only be found by the items before it."""
    items = rng.sample(strings, rng.randint(5, 9))
    said = []
    for _ in range(rng.randint(3, 5)):
        start = rng.randrange(len(items) - 2)
        said.append(", ".join(items[start : start + rng.randint(2, 3)]))
    return f"List: {', '.join(items)}.", f"Parts: {'; '.join(said)}."


def _scales(library: Library) -> list[list[tuple[str, float]]]:
    """For each quantity that is compared, the values of what is trained on: as they are said, and numbers."""
    known = [e for e in library.entities if e.role != "neither"]
    found: list[dict[str, float]] = [
        {
            e.values[scale.key]: e.numbers[scale.key]
            for e in known
            if e.kind == scale.kind and scale.key in e.values
        }
        for scale in SCALES
    ]
    return [sorted(values.items()) for values in found]


def _ordered(
    rng: random.Random, strings: list[str], scales: list[list[tuple[str, float]]]
) -> tuple[str, str]:
    """Who has more of something: what a comparison's verdict follows from."""
    told, verdicts = [], []
    for _ in range(rng.randint(2, 4)):
        pairs = list(zip(rng.sample(strings, 2), rng.sample(rng.choice(scales), 2), strict=True))
        told.append(", ".join(f"{name} has {value}" for name, (value, _) in pairs))
        (less, _), (more, _) = sorted(pairs, key=lambda pair: pair[1][1])
        verdicts.append(f"{more} has more" if rng.random() < 0.5 else f"{less} has less")
    return f"More or less: {'; '.join(told)}.", "; ".join(verdicts) + "."


def _equation(rng: random.Random) -> str:
    """An equation as in the steps of a sum; its result is a whole number from 1 to `LARGEST`."""
    operation = rng.choice("++--*/")
    if operation == "+":
        a = rng.randint(1, LARGEST - 1)
        b = rng.randint(1, LARGEST - a)
        return f"{a} + {b} = {a + b}"
    if operation == "-":
        a = rng.randint(2, LARGEST)
        b = rng.randint(1, a - 1)
        return f"{a} - {b} = {a - b}"
    b = rng.randint(2, 4)
    a = rng.randint(1, LARGEST // b)
    return f"{a} * {b} = {a * b}" if operation == "*" else f"{a * b} / {b} = {a}"


_COPYING = (_repeat, _spans, _options, _partners, _others)


class Exercises:
    """Exercises over a library's names and values; copies: the share of those in copying, 0 to 1."""

    def __init__(self, library: Library, copies: float) -> None:
        self._strings, self._scales, self._copies = _strings(library), _scales(library), copies

    def draw(self, rng: random.Random, knows: bool) -> Problem:
        """An exercise in copying, comparing or reckoning.

        knows: False for a model that must not learn what follows from facts, which has copying only.
        """
        if not knows or rng.random() < self._copies:
            prompt, answer = rng.choice(_COPYING)(rng, self._strings)
        elif rng.random() < 0.5:
            prompt, answer = _ordered(rng, self._strings, self._scales)
        else:
            prompt, answer = "Reckon.", " ".join(_equation(rng) + "." for _ in range(_SUMS))
        return Problem(drills.FAMILY, "easy", prompt, answer, (), prompt, split=False)
