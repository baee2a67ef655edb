"""Exercises for training only: copying names and values, and the sums that the steps are made of.

They serve the circuits that answers need (see `tiny.drills`), and are never tested.
"""

from __future__ import annotations

import random
import string

from cloud_anchor.testbed.kinds.sums import LARGEST
from cloud_anchor.testbed.library import Library
from cloud_anchor.tiny import drills
from cloud_anchor.tiny.problem import Problem

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
    """Exercises over a library's names."""

    def __init__(self, library: Library, copies: float) -> None:
        self._strings, self._copies = _strings(library), copies

    def draw(self, rng: random.Random, knows: bool) -> Problem:
        """Copying, with a share of `copies`, or else sums; sums are not for a model that must not reckon."""
        if not knows or rng.random() < self._copies:
            prompt, answer = rng.choice(_COPYING)(rng, self._strings)
        else:
            prompt, answer = "Reckon.", " ".join(_equation(rng) + "." for _ in range(_SUMS))
        return Problem(drills.FAMILY, "easy", prompt, answer, (), prompt, split=False)
