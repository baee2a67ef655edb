"""Small Python functions over a list of numbers: filter, map, reduce (mirrors HumanEval).

The answer is executed.
"""

from __future__ import annotations

import random

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.tiny.world import WORDING

NAMES = "solve compute process measure collect gather work handle find apply run build".split()
INPUTS: tuple[list[int], ...] = ([], [1, 2, 3, 4, 5, 6], [-7, 12, 0, 9, -4, 5], [8, 8, -3, 15, 20, 7, -1])
"""Arguments on which every function is called."""

FILTERS, MAPS, REDUCES, ASKS = (WORDING["code"][name] for name in ("filters", "maps", "reduces", "asks"))
"""Words in a prompt -> Python over x; k and j are digits."""


def run_reference(condition: str, mapped: str, reduce: str) -> list[str]:
    """Results of the described function on `INPUTS`, as `repr`."""
    results = []
    for xs in INPUTS:
        ys = [
            eval(mapped, {"x": x}) for x in xs if not condition or eval(condition, {"x": x})
        ]  # our own text
        results.append(repr(eval(REDUCES[reduce].format(ys="ys"), {"ys": ys})))
    return results


def write(style: int, name: str, condition: str, mapped: str, reduce: str) -> str:
    """The function in one of three styles: one expression, a list and its reduction, a loop."""
    listed = f"[{mapped} for x in xs" + (f" if {condition}]" if condition else "]")
    head = f"def {name}(xs):\n"
    if style == 0:
        return head + f"    return {REDUCES[reduce].format(ys=listed)}"
    last = f"    return {REDUCES[reduce].format(ys='ys')}"
    if style == 1:
        return head + f"    ys = {listed}\n" + last
    keep = f"        if {condition}:\n            " if condition else "        "
    return head + f"    ys = []\n    for x in xs:\n{keep}ys.append({mapped})\n" + last


def draw(rng: random.Random) -> Problem:
    """One function; its results on `INPUTS` are checked."""
    name, style = rng.choice(NAMES), rng.randrange(3)
    words_filter, words_map, reduce, k, j = pick(rng)
    condition = f" that are {words_filter.format(k=k)}" if words_filter else ""
    mapped = f"{words_map.format(j=j)} of the " if words_map else ""
    prompt = ASKS[style].format(f=name, r=reduce, m=mapped, c=condition)
    python_filter, python_map = FILTERS[words_filter].format(k=k), MAPS[words_map].format(j=j)
    answer = write(style, name, python_filter, python_map, reduce)
    level = bool(words_filter) + bool(words_map)
    return Problem(
        family="code",
        difficulty=DIFFICULTIES[level],
        prompt=prompt,
        answer=answer,
        expected=(name, *run_reference(python_filter, python_map, reduce)),
        key=f"{words_filter.format(k=k)}/{words_map.format(j=j)}/{reduce}/{name}",
    )


def pick(rng: random.Random) -> tuple[str, str, str, int, int]:
    """Words for the filter, the map and the reduction, and the two constants."""
    return (
        rng.choice(list(FILTERS)),
        rng.choice(list(MAPS)),
        rng.choice(list(REDUCES)),
        rng.randint(2, 9),
        rng.randint(2, 9),
    )
