"""Word problems of one to three steps, worked step by step (mirrors GSM8K)."""

from __future__ import annotations

import random

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.tiny.world import WORDING, WORDS

_SAY = WORDING["arithmetic"]


def _operand(operation: str, amount: int, rng: random.Random) -> int:
    match operation:
        case "buy":
            return rng.randint(1, 9)
        case "lose":
            return rng.randint(1, min(9, amount - 1))
        case _:
            return rng.randint(2, 3)


def _apply(operation: str, amount: int, n: int) -> int:
    return amount + n if operation == "buy" else amount - n if operation == "lose" else amount * n


def draw(rng: random.Random) -> Problem:
    """One word problem; the answer's last number is checked."""
    steps = rng.randint(1, 3)
    phrasing = rng.randrange(3)
    person, thing = rng.choice(WORDS["people"]), rng.choice(WORDS["things"])
    start = amount = rng.randint(3, 20)
    say = {"p": person, "o": thing, "a": start}
    told = [_SAY["openings"][phrasing].format(**say)]
    worked = [_SAY["starts"][phrasing].format(**say)]
    key = [person, thing, str(start)]
    for _ in range(steps):
        allowed = ["buy"] * (amount <= 30) + ["lose"] * (amount >= 2) + ["times"] * (amount <= 10)
        operation = rng.choice(allowed)
        n = _operand(operation, amount, rng)
        result = _apply(operation, amount, n)
        told.append(_SAY["events"][operation][phrasing].format(p=person, o=thing, n=n))
        worked.append(_SAY["steps"][operation][phrasing].format(p=person, o=thing, n=n, a=amount, b=result))
        amount = result
        key.append(f"{operation}{n}")
    told.append(_SAY["questions"][phrasing].format(p=person, o=thing))
    worked.append(_SAY["ends"][phrasing].format(p=person, o=thing, b=amount))
    return Problem(
        family="arithmetic",
        difficulty=DIFFICULTIES[steps - 1],
        prompt=" ".join(told),
        answer=" ".join(worked),
        expected=(str(amount),),
        key="/".join(key),
    )
