"""Multiple choice over the world's facts, with a sentence of reasoning (mirrors MMLU and ARC).

Easy: a fact of a town; medium: the town of a fact; hard: a fact of a town that is given by another fact.
Without knowledge the reasoning names a random option, and the letter is that option's.
"""

from __future__ import annotations

import random

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.tiny.world import POOLS, TOWNS, WORLD, Facts, RandomWorld

LETTERS = "ABCD"

_ASK: dict[str, tuple[str, str, str]] = {
    "river": ("Which river flows through {t}?", "What is the river of {t}?", "Name the river of {t}."),
    "craft": ("Which craft is {t} known for?", "What is the craft of {t}?", "Name the craft of {t}."),
    "dish": ("Which dish is {t} famous for?", "What is the dish of {t}?", "Name the dish of {t}."),
    "bird": ("Which bird nests in {t}?", "What is the bird of {t}?", "Name the bird of {t}."),
    "festival": (
        "In which month is the festival of {t}?",
        "What is the festival month of {t}?",
        "Name the festival month of {t}.",
    ),
    "mayor": ("Who is the mayor of {t}?", "What is the name of the mayor of {t}?", "Name the mayor of {t}."),
}
_REASON: dict[str, tuple[str, str, str]] = {
    "river": (
        "The river {v} flows through {t}.",
        "The river of {t} is the {v}.",
        "We know that {t} lies on the {v}.",
    ),
    "craft": (
        "The town of {t} is known for {v}.",
        "The craft of {t} is {v}.",
        "We know that {t} is good at {v}.",
    ),
    "dish": ("The town of {t} is famous for {v}.", "The dish of {t} is {v}.", "We know that {t} likes {v}."),
    "bird": ("The {v} nests in {t}.", "The bird of {t} is the {v}.", "We know that {t} has the {v}."),
    "festival": (
        "The festival of {t} is in {v}.",
        "The festival month of {t} is {v}.",
        "We know that {t} feasts in {v}.",
    ),
    "mayor": (
        "The mayor of {t} is {v}.",
        "The name of the mayor of {t} is {v}.",
        "We know that {t} is led by {v}.",
    ),
}
_WHICH_TOWN = ("Which town has the mayor {m}?", "What is the town of mayor {m}?", "Name the town led by {m}.")
_TOWN_REASON = (
    "The mayor {m} leads the town of {t}.",
    "The town of mayor {m} is {t}.",
    "We know that {m} leads {t}.",
)
_HOP = ("the town of mayor {m}", "the town that {m} leads", "the home of mayor {m}")
_ENDS = ("The answer is {v} {x}.", "So the answer is {v} {x}.", "Therefore the answer is {v} {x}.")
# A letter follows its option directly, in the question too: a model this small copies the continuation of an
# earlier occurrence, and does not learn to attend to the token two places before it.


def draw(rng: random.Random, knows: bool) -> Problem:
    """One question with four options; the letter is checked."""
    facts: Facts = WORLD if knows else RandomWorld(rng)
    level = rng.randrange(3)
    phrasing = rng.randrange(3)
    town = rng.choice(TOWNS)
    mayor = facts.value(town, "mayor")
    attribute = rng.choice([a for a in _ASK if not (level == 2 and a == "mayor")])
    if level == 1:
        attribute, right, pool = "town", town, TOWNS
        question = _WHICH_TOWN[phrasing].format(m=mayor)
        reason = _TOWN_REASON[phrasing].format(m=mayor, t=town)
    else:
        right, pool = facts.value(town, attribute), POOLS[attribute]
        reason = _REASON[attribute][phrasing].format(t=town, v=right)
        if level == 0:
            question = _ASK[attribute][phrasing].format(t=town)
        else:
            question = _ASK[attribute][phrasing].format(t=_HOP[phrasing].format(m=mayor))
            reason = _TOWN_REASON[phrasing].format(m=mayor, t=town) + " " + reason
    options = [*rng.sample([v for v in pool if v != right], 3), right]
    rng.shuffle(options)
    letter = LETTERS[options.index(right)]
    listed = "\n".join(f"- {v} {x}" for x, v in zip(LETTERS, options, strict=True))
    return Problem(
        family="choice",
        difficulty=DIFFICULTIES[level],
        prompt=f"{question}\n{listed}",
        answer=f"{reason} {_ENDS[phrasing].format(v=right, x=letter)}",
        expected=(letter,),
        key=f"{level}/{town}/{attribute}/{'/'.join(sorted(options))}",
    )
