"""Descriptions, comparisons and explanations of 60 to 200 tokens (mirrors open questions).

Checked are the requested facts, which must all occur in the requested order, and the conclusion of a
comparison.
"""

from __future__ import annotations

import random

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.tiny.world import FACTS, TOWNS, WORDING, WORDS

_SAY, _VISIT = WORDING["description"], WORDING["visit"]
PROFILES, PAIRS, _VISIT_ORDER = (WORDING["together"][name] for name in ("profiles", "pairs", "visits"))
"""Attributes that are asked for together, two sets for each difficulty, and in the order of each phrasing."""


def _listed(nouns: list[str]) -> str:
    return ", ".join(nouns[:-1]) + " and " + nouns[-1]


def _describe(rng: random.Random, phrasing: int, level: int) -> Problem:
    town = rng.choice(TOWNS)
    attributes = PROFILES[2 * level + rng.randrange(2)]
    values = [FACTS[town][a] for a in attributes]
    told = [_SAY["tell"][a][phrasing].format(t=town, v=v) for a, v in zip(attributes, values, strict=True)]
    asked = _SAY["ask_town"][phrasing].format(t=town, l=_listed([_SAY["nouns"][a] for a in attributes]))
    return Problem(
        family="description",
        difficulty=DIFFICULTIES[level],
        prompt=asked,
        answer=" ".join(
            [_SAY["open_town"][phrasing].format(t=town), *told, _SAY["close_town"][phrasing].format(t=town)]
        ),
        expected=tuple(values),
        key=f"describe/{town}/{'/'.join(attributes)}",
    )


def _compare(rng: random.Random, phrasing: int, level: int) -> Problem:
    town, other = rng.sample(TOWNS, 2)
    attributes = PAIRS[2 * level + rng.randrange(2)]
    told, expected = [], []
    for attribute in attributes:
        v, w = FACTS[town][attribute], FACTS[other][attribute]
        form = _SAY["pair_year" if attribute == "year" else "pair"]
        told.append(form[phrasing].format(n=_SAY["nouns"][attribute], t=town, u=other, v=v, w=w))
        expected += [v, w]
    older = town if int(expected[-2]) < int(expected[-1]) else other
    asked = _SAY["ask_pair"][phrasing].format(
        t=town, u=other, l=_listed([_SAY["nouns"][a] for a in attributes])
    )
    opening = _SAY["open_pair"][phrasing].format(t=town, u=other)
    return Problem(
        family="description",
        difficulty=DIFFICULTIES[level],
        prompt=asked,
        answer=" ".join([opening, *told, _SAY["close_pair"][phrasing].format(x=older)]),
        expected=(*expected, older),
        key=f"compare/{town}/{other}/{'/'.join(attributes)}",
    )


def _explain(rng: random.Random, phrasing: int, level: int) -> Problem:
    town, person = rng.choice(TOWNS), rng.choice(WORDS["people"])
    values = {a: FACTS[town][a] for a in _VISIT_ORDER[phrasing]}
    return Problem(
        family="description",
        difficulty=DIFFICULTIES[level],
        prompt=_VISIT["ask"][phrasing].format(p=person, t=town),
        answer=_VISIT["tell"][phrasing].format(p=person, t=town, **values),
        expected=tuple(values[a] for a in _VISIT_ORDER[phrasing]),
        key=f"explain/{town}/{person}",
    )


def draw(rng: random.Random) -> Problem:
    """One long answer. Difficulty is the number of facts; an explanation always has five."""
    phrasing = rng.randrange(3)
    kind = rng.randrange(5)
    if kind == 0:
        return _explain(rng, phrasing, level=1)
    level = rng.randrange(3)
    return (_describe if kind <= 2 else _compare)(rng, phrasing, level)
