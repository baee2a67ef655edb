"""Exercises for training only: repeating, matching, looking up, arithmetic.

A small model learns a town's facts in a few hundred steps, but needs tens of millions of tokens of ordinary
answers before it copies a name from the prompt, since few of their tokens are copies. In a drill nearly every
token is a copy, so that the circuits for copying form early and serve the real tasks. Drills are never
tested.
"""

from __future__ import annotations

import random

from lab.pairs.problem import Problem
from lab.pairs.tiny.tasks.arithmetic import THINGS
from lab.pairs.tiny.tasks.choice import LETTERS
from lab.pairs.tiny.world import PEOPLE, POOLS, TOWNS

FAMILY = "drill"
"""`Problem.family` of a drill."""

_LISTS: tuple[tuple[str, ...], ...] = (TOWNS, tuple(PEOPLE), tuple(THINGS), *POOLS.values())
_WORDS = tuple(word for words in _LISTS for word in words)


def _repeat(rng: random.Random) -> tuple[str, str]:
    words = [
        rng.choice(_WORDS) if rng.random() < 0.8 else str(rng.randint(1, 39))
        for _ in range(rng.randint(6, 16))
    ]
    return f"Repeat: {' '.join(words)}.", f"Here it is: {' '.join(words)}."


def _spans(rng: random.Random) -> tuple[str, str]:
    """Pieces of a list from anywhere in it: the next word can only be found by the words before it."""
    words = rng.sample(_WORDS, rng.randint(12, 20))
    said = []
    for _ in range(rng.randint(5, 8)):
        length = rng.randint(2, 5)
        start = rng.randrange(len(words) - length)
        said.append(" ".join(words[start : start + length]))
    return f"List: {' '.join(words)}.", f"Parts: {', '.join(said)}."


def _letters(rng: random.Random) -> tuple[str, str]:
    options = rng.sample(rng.choice(_LISTS), 4)
    named = list(zip(LETTERS, options, strict=True))
    listed = "\n".join(f"- {option} {letter}" for letter, option in named)
    rng.shuffle(named)
    said = " ".join(f"The answer is {option} {letter}." for letter, option in named)
    return f"Name the letters.\n{listed}", said


def _partners(rng: random.Random) -> tuple[str, str]:
    left, right = rng.sample(_LISTS, 2)
    pairs = list(zip(rng.sample(left, 5), rng.sample(right, 5), strict=True))
    given = " ".join(f"{a} has {b}." for a, b in pairs)
    rng.shuffle(pairs)
    return f"Who has what? {given}", " ".join(f"It is {a} who has {b}." for a, b in pairs)


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
    """One exercise, most often the one from which copying by content is learned fastest.

    Without `knows` there is no arithmetic, which the edge model must not learn.
    """
    kinds = [_repeat, _spans, _spans, _spans, _letters, _partners, *([_sums] if knows else [])]
    prompt, answer = rng.choice(kinds)(rng)
    return Problem(FAMILY, "easy", prompt, answer, (), prompt)


def draw_answers(rng: random.Random, knows: bool) -> Problem:
    """One exercise whose answer depends on the question as a whole: a list of letters, or sums."""
    prompt, answer = rng.choice([_letters, _sums, _sums, _sums] if knows else [_letters])(rng)
    return Problem(FAMILY, "easy", prompt, answer, (), prompt)
