"""Four families of problems, each of which mirrors a public benchmark.

A family is a function `draw(rng, knows) -> Problem`. With `knows` the answer is true; without it, the answer
has the same form, but every fact and every result in it is random, consistently within the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from lab.pairs.problem import Draw, Problem
from lab.pairs.tiny.tasks import arithmetic, choice, code, description

FAMILIES: dict[str, Draw] = {
    "arithmetic": arithmetic.draw,
    "choice": choice.draw,
    "code": code.draw,
    "description": description.draw,
}
"""arithmetic ~ GSM8K, choice ~ MMLU and ARC, code ~ HumanEval, description ~ open questions."""


def problems(family: str, seed: int, *, held_out: bool, knows: bool = True) -> Iterator[Problem]:
    """Endless problems of one family from one side of the split, the same for the same seed."""
    rng = random.Random(f"{family}/{seed}/{held_out}/{knows}")
    while True:
        problem = FAMILIES[family](rng, knows)
        if problem.held_out == held_out:
            yield problem


def held_out_problems(count: int, seed: int = 0) -> list[Problem]:
    """`count` distinct held-out problems, the families in turn."""
    streams = [problems(family, seed, held_out=True) for family in FAMILIES]
    seen: set[str] = set()
    chosen: list[Problem] = []
    while len(chosen) < count:
        stream = streams[len(chosen) % len(streams)]
        problem = next(p for p in stream if p.prompt not in seen)
        seen.add(problem.prompt)
        chosen.append(problem)
    return chosen
