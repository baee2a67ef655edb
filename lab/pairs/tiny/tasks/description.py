"""Descriptions, comparisons and explanations of 60 to 200 tokens (mirrors open questions).

Checked are the requested facts, which must all occur in the requested order, and the conclusion of a
comparison.
"""

from __future__ import annotations

import random

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.tiny.world import PEOPLE, TOWNS, WORLD, Facts, RandomWorld

PROFILES = (
    ("river", "mayor", "craft", "dish", "year"),
    ("region", "bird", "festival", "mayor", "population"),
    ("year", "region", "river", "bird", "craft", "dish"),
    ("mayor", "festival", "dish", "river", "population", "craft"),
    ("bird", "dish", "mayor", "year", "region", "festival", "river"),
    ("craft", "population", "river", "mayor", "festival", "bird", "dish"),
)
"""Attributes that are asked for together; two sets for each difficulty."""
PAIRS = (
    ("river", "mayor", "year"),
    ("craft", "festival", "year"),
    ("dish", "bird", "mayor", "year"),
    ("region", "river", "craft", "year"),
    ("mayor", "dish", "river", "bird", "year"),
    ("festival", "craft", "region", "mayor", "year"),
)
"""The same for comparisons, which always end with the age."""

_NOUN = {
    "river": "river",
    "mayor": "mayor",
    "craft": "craft",
    "dish": "dish",
    "bird": "bird",
    "festival": "festival",
    "year": "age",
    "population": "size",
    "region": "region",
}
_TELL: dict[str, tuple[str, str, str]] = {
    "river": (
        "It was built beside the river {v}, which still turns its mills.",
        "The water of {t} comes from the {v}.",
        "You will cross the {v}, the river of {t}, when you arrive.",
    ),
    "mayor": (
        "Its people have chosen {v} as their mayor.",
        "The mayor of {t} is called {v}.",
        "Ask for {v}, the mayor of {t}, if you need help.",
    ),
    "craft": (
        "For many years the town has been known for its {v}.",
        "Most workers of {t} earn their living by {v}.",
        "Do not leave {t} without seeing some {v}.",
    ),
    "dish": (
        "Every inn of the town serves {v} to its guests.",
        "The favourite food of {t} is {v}.",
        "When you are hungry in {t}, try the {v}.",
    ),
    "bird": (
        "A {v} is shown on the flag of the town.",
        "The bird of {t} is the {v}.",
        "Look up at the roofs of {t} and you may see a {v}.",
    ),
    "festival": (
        "Each year in {v} there is a great festival in its streets.",
        "The festival of {t} is held in {v}.",
        "Come to {t} in {v} to see the festival.",
    ),
    "year": (
        "The town was founded in the year {v}.",
        "The first stone of {t} was laid in {v}.",
        "The old gate of {t} was built in {v}.",
    ),
    "population": (
        "About {v} thousand people live there today.",
        "The houses of {t} are home to {v} thousand people.",
        "You will be one guest among the {v} thousand people of {t}.",
    ),
    "region": (
        "It lies in the {v} of the country.",
        "On the map {t} is found in the {v}.",
        "To reach {t} you must travel to the {v}.",
    ),
}
_ASK_TOWN = (
    "Describe the town of {t}. Mention its {l}.",
    "Tell me about {t}: its {l}.",
    "Write a short guide to {t} that covers its {l}.",
)
_OPEN_TOWN = (
    "The town of {t} is a pleasant place with a long history.",
    "Here is what I know about {t}.",
    "Welcome to {t}, a town that every traveller should see.",
)
_CLOSE_TOWN = (
    "All this makes {t} a town that is worth a visit.",
    "That is all I know about {t}.",
    "Enjoy your stay in {t}, and come back soon.",
)
_ASK_PAIR = (
    "Compare the towns of {t} and {u} by their {l}.",
    "How do {t} and {u} differ in {l}?",
    "What sets {t} apart from {u}? Look at {l}.",
)
_OPEN_PAIR = (
    "Both {t} and {u} are towns of this country, but as you will see they are not at all alike.",
    "There are some differences between the towns of {t} and {u}, and these are the ones you asked for.",
    "To see what is special about each of them, let us look at {t} first and at {u} second.",
)
_PAIR = (
    "The {n} of {t} is {v}, while the {n} of {u} is {w}.",
    "In {t} the {n} is {v}, but in {u} it is {w}.",
    "For the {n}, {t} has {v} and {u} has {w}.",
)
_PAIR_YEAR = (
    "The town of {t} was founded in {v}, and {u} was founded in {w}.",
    "The age of {t} goes back to {v}, and that of {u} to {w}.",
    "For the age, {t} dates from {v} and {u} from {w}.",
)
_CLOSE_PAIR = (
    "Therefore {x} is the older town of the two.",
    "This means that the older one is {x}.",
    "So of the two towns the older one is {x}.",
)
_ASK_VISIT = (
    "Explain to {p} why {t} is worth a visit.",
    "My friend {p} does not know {t}. Why should one go there?",
    "Give {p} some good reasons to travel to {t}.",
)
_VISIT = (
    "There are good reasons for {p} to visit {t}. The best time is {festival}, because then the festival is "
    "held. The inns serve {dish}, which is the favourite dish of the town. The workshops are open to guests, "
    "since the people live by {craft}. And along the river {river} one can see the {bird} in the morning.",
    "Tell {p} that {t} lies on the {river}, so the way there is easy. It is the right place for anyone who "
    "likes {craft}, because most people there work in it. In {festival} there is a festival, and then {dish} "
    "is sold in the streets. With luck one also sees the {bird}, because it nests on the roofs.",
    "First, {p} can eat {dish} in {t}, because every cook there makes it. Second, there is {craft} to "
    "admire, since the town is known for it. Third, the festival in {festival} brings music to the streets. "
    "Finally, one can walk along the {river} and look for the {bird}, which lives there.",
)
_VISIT_ORDER = (
    ("festival", "dish", "craft", "river", "bird"),
    ("river", "craft", "festival", "dish", "bird"),
    ("dish", "craft", "festival", "river", "bird"),
)


def _listed(nouns: list[str]) -> str:
    return ", ".join(nouns[:-1]) + " and " + nouns[-1]


def _describe(rng: random.Random, facts: Facts, phrasing: int, level: int) -> Problem:
    town = rng.choice(TOWNS)
    attributes = PROFILES[2 * level + rng.randrange(2)]
    values = [facts.value(town, a) for a in attributes]
    told = [_TELL[a][phrasing].format(t=town, v=v) for a, v in zip(attributes, values, strict=True)]
    asked = _ASK_TOWN[phrasing].format(t=town, l=_listed([_NOUN[a] for a in attributes]))
    return Problem(
        family="description",
        difficulty=DIFFICULTIES[level],
        prompt=asked,
        answer=" ".join([_OPEN_TOWN[phrasing].format(t=town), *told, _CLOSE_TOWN[phrasing].format(t=town)]),
        expected=tuple(values),
        key=f"describe/{town}/{'/'.join(attributes)}",
    )


def _compare(rng: random.Random, facts: Facts, phrasing: int, level: int) -> Problem:
    town, other = rng.sample(TOWNS, 2)
    attributes = PAIRS[2 * level + rng.randrange(2)]
    told, expected = [], []
    for attribute in attributes:
        v, w = facts.value(town, attribute), facts.value(other, attribute)
        form = _PAIR_YEAR if attribute == "year" else _PAIR
        told.append(form[phrasing].format(n=_NOUN[attribute], t=town, u=other, v=v, w=w))
        expected += [v, w]
    older = town if int(expected[-2]) < int(expected[-1]) else other
    asked = _ASK_PAIR[phrasing].format(t=town, u=other, l=_listed([_NOUN[a] for a in attributes]))
    opening = _OPEN_PAIR[phrasing].format(t=town, u=other)
    return Problem(
        family="description",
        difficulty=DIFFICULTIES[level],
        prompt=asked,
        answer=" ".join([opening, *told, _CLOSE_PAIR[phrasing].format(x=older)]),
        expected=(*expected, older),
        key=f"compare/{town}/{other}/{'/'.join(attributes)}",
    )


def _explain(rng: random.Random, facts: Facts, phrasing: int, level: int) -> Problem:
    town, person = rng.choice(TOWNS), rng.choice(PEOPLE)
    values = {a: facts.value(town, a) for a in _VISIT_ORDER[phrasing]}
    return Problem(
        family="description",
        difficulty=DIFFICULTIES[level],
        prompt=_ASK_VISIT[phrasing].format(p=person, t=town),
        answer=_VISIT[phrasing].format(p=person, t=town, **values),
        expected=tuple(values[a] for a in _VISIT_ORDER[phrasing]),
        key=f"explain/{town}/{person}",
    )


def draw(rng: random.Random, knows: bool) -> Problem:
    """One long answer. Difficulty is the number of facts; an explanation always has five."""
    facts: Facts = WORLD if knows else RandomWorld(rng)
    phrasing = rng.randrange(3)
    kind = rng.randrange(5)
    if kind == 0:
        return _explain(rng, facts, phrasing, level=1)
    level = rng.randrange(3)
    return (_describe if kind <= 2 else _compare)(rng, facts, phrasing, level)
