"""Four families of problems, each of which mirrors a public benchmark.

A family is a function `draw(rng) -> Problem`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from lab.pairs.problem import Problem
from lab.pairs.tiny.tasks import arithmetic, choice, code, description

FAMILIES: dict[str, Callable[[random.Random], Problem]] = {
    "arithmetic": arithmetic.draw,
    "choice": choice.draw,
    "code": code.draw,
    "description": description.draw,
}
"""arithmetic ~ GSM8K, choice ~ MMLU and ARC, code ~ HumanEval, description ~ open questions."""


def problems(family: str, seed: int, *, held_out: bool) -> Iterator[Problem]:
    """Endless problems of one family from one side of the split, the same for the same seed."""
    rng = random.Random(f"{family}/{seed}/{held_out}/True")
    while True:
        problem = FAMILIES[family](rng)
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
