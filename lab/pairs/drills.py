"""Exercises for training only: repeating, matching, looking up, comparing, arithmetic.

A small model learns a world's facts in a few hundred steps, but needs tens of millions of tokens of ordinary
answers before it copies a name from the prompt, since few of their tokens are copies. In a drill nearly every
token is a copy, so that the circuits for copying form early and serve the real tasks. Drills are never
tested. Responsible for their forms. Not responsible for what they are made of, which a world's recipe draws.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Sequence

from lab.pairs.problem import Problem

FAMILY = "drill"
"""`Problem.family` of a drill."""

Drill = tuple[str, str]
"""Prompt and answer."""


def problem(drill: Drill) -> Problem:
    prompt, answer = drill
    return Problem(FAMILY, "easy", prompt, answer, (), prompt, split=False)


def repeat(said: str) -> Drill:
    return f"Repeat: {said}.", f"Here it is: {said}."


def parts(items: Sequence[str], cuts: Iterable[slice], between: str, behind: str) -> Drill:
    """Pieces of a list from anywhere in it: the next item can only be found by the items before it.

    between: what stands between items. behind: between pieces.
    """
    said = behind.join(between.join(items[cut]) for cut in cuts)
    return f"List: {between.join(items)}.", f"Parts: {said}."


def partners(rng: random.Random, pairs: Iterable[tuple[str, str]]) -> Drill:
    """Who has what, in another order."""
    told = list(pairs)
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


def reckoning(equations: Iterable[str]) -> Drill:
    """Equations, of which only the results are masked (see `batches.mask`)."""
    return "Reckon.", " ".join(f"{equation}." for equation in equations)
