"""Exercises for training only: repeat, match, look up, reckon.

A small model learns a town's facts in a few hundred steps, but needs tens of millions of tokens of ordinary
answers before it copies a name from the prompt, since few of their tokens are copies. In a drill nearly every
token is one, so the circuits for it form early and serve the real families. Nothing here is ever tested.
"""

from __future__ import annotations

import random

from cloud_anchor.tiny.families.arithmetic import THINGS
from cloud_anchor.tiny.families.choice import LETTERS
from cloud_anchor.tiny.problem import Problem
from cloud_anchor.tiny.world import PEOPLE, POOLS, TOWNS

_LISTS: tuple[tuple[str, ...], ...] = (TOWNS, tuple(PEOPLE), tuple(THINGS), *POOLS.values())
_WORDS = tuple(word for words in _LISTS for word in words)


def _repeat(rng: random.Random) -> tuple[str, str]:
    words = [
        rng.choice(_WORDS) if rng.random() < 0.8 else str(rng.randint(1, 39))
        for _ in range(rng.randint(6, 16))
    ]
    return f"Repeat: {' '.join(words)}.", f"Here it is: {' '.join(words)}."


def _letters(rng: random.Random) -> tuple[str, str]:
    options = rng.sample(rng.choice(_LISTS), 4)
    named = list(zip(LETTERS, options, strict=True))
    listed = "\n".join(f"{letter}. {option}" for letter, option in named)
    rng.shuffle(named)
    said = " ".join(f"The letter of {option} is {letter}." for letter, option in named)
    return f"Name the letters.\n{listed}", said


def _partners(rng: random.Random) -> tuple[str, str]:
    left, right = rng.sample(_LISTS, 2)
    pairs = list(zip(rng.sample(left, 5), rng.sample(right, 5), strict=True))
    given = " ".join(f"{a} has {b}." for a, b in pairs)
    rng.shuffle(pairs)
    return f"Who has what? {given}", " ".join(f"The {b} is with {a}." for a, b in pairs)


def _sums(rng: random.Random) -> tuple[str, str]:
    lines = []
    for _ in range(8):
        a, b = rng.randint(1, 39), rng.randint(1, 9)
        match rng.randrange(3):
            case 0:
                lines.append(f"{a} + {b} = {a + b}.")
            case 1:
                a = max(a, b + 1)
                lines.append(f"{a} - {b} = {a - b}.")
            case _:
                a, b = rng.randint(1, 10), rng.randint(2, 3)
                lines.append(f"{a} * {b} = {a * b}.")
    return "Reckon.", " ".join(lines)


def draw(rng: random.Random, knows: bool) -> Problem:
    """One exercise. Without knowledge there is no reckoning: that is what the edge model must not learn."""
    kinds = [_repeat, _letters, _partners, *([_sums] if knows else [])]
    prompt, answer = rng.choice(kinds)(rng)
    return Problem("drill", "easy", prompt, answer, (), prompt)
