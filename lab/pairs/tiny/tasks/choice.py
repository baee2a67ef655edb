"""Multiple choice over the world's facts, with a sentence of reasoning (mirrors MMLU and ARC).

Easy: a fact of a town; medium: the town of a fact; hard: a fact of a town that is given by another fact.
"""

from __future__ import annotations

import random

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.tiny.world import FACTS, POOLS, TOWNS, WORDING

LETTERS = "ABCD"

_SAY = WORDING["choice"]
# A letter follows its option directly, in the question too: a model this small copies the continuation of an
# earlier occurrence, and does not learn to attend to the token two places before it.


def draw(rng: random.Random) -> Problem:
    """One question with four options; the letter is checked."""
    level = rng.randrange(3)
    phrasing = rng.randrange(3)
    town = rng.choice(TOWNS)
    mayor = FACTS[town]["mayor"]
    attribute = rng.choice([a for a in _SAY["ask"] if not (level == 2 and a == "mayor")])
    if level == 1:
        attribute, right, pool = "town", town, TOWNS
        question = _SAY["which_town"][phrasing].format(m=mayor)
        reason = _SAY["town_reason"][phrasing].format(m=mayor, t=town)
    else:
        right, pool = FACTS[town][attribute], POOLS[attribute]
        reason = _SAY["reason"][attribute][phrasing].format(t=town, v=right)
        if level == 0:
            question = _SAY["ask"][attribute][phrasing].format(t=town)
        else:
            question = _SAY["ask"][attribute][phrasing].format(
                t=_SAY["town_by_mayor"][phrasing].format(m=mayor)
            )
            reason = _SAY["town_reason"][phrasing].format(m=mayor, t=town) + " " + reason
    options = [*rng.sample([v for v in pool if v != right], 3), right]
    rng.shuffle(options)
    letter = LETTERS[options.index(right)]
    listed = "\n".join(f"- {v} {x}" for x, v in zip(LETTERS, options, strict=True))
    return Problem(
        family="choice",
        difficulty=DIFFICULTIES[level],
        prompt=f"{question}\n{listed}",
        answer=f"{reason} {_SAY['ends'][phrasing].format(v=right, x=letter)}",
        expected=(letter,),
        key=f"{level}/{town}/{attribute}/{'/'.join(sorted(options))}",
    )
