"""Small Python functions as in the tiny world, in a form that no prompt determines."""

from __future__ import annotations

import re

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.testbed.scene import Scene
from lab.pairs.tiny.tasks import code

_ASKS = {
    "trained": (*code.ASKS, "Python: {f}(xs) is the {r} of the {m}numbers{c}."),
    "held_out": (
        "Write {f}(xs) in Python that returns the {r} of the {m}numbers in xs{c}.",
        "Define a Python function {f}. It gives the {r} of the {m}numbers in a list xs{c}.",
    ),
}
_LISTS = ("ys", "out", "kept", "result", "found")
_ITEMS = ("x", "n", "v", "item")


def draw(scene: Scene) -> Problem:
    """Expected are the function's name and its results on the inputs of `lab.pairs.tiny.tasks.code`."""
    rng = scene.rng
    name = rng.choice(code.NAMES)
    said = code.pick(rng)
    words_filter, words_map, reduce, k, j = said
    done = said if scene.knows else code.pick(rng)
    condition, mapped = code.FILTERS[done[0]].format(k=done[3]), code.MAPS[done[1]].format(j=done[4])
    source = code.write(rng.randrange(3), name, condition, mapped, done[2])
    source = re.sub(r"\bys\b", rng.choice(_LISTS), re.sub(r"\bx\b", rng.choice(_ITEMS), source))
    prompt = scene.template(_ASKS).format(
        f=name,
        r=reduce,
        m=f"{words_map.format(j=j)} of the " if words_map else "",
        c=f" that are {words_filter.format(k=k)}" if words_filter else "",
    )
    return Problem(
        family="function",
        difficulty=DIFFICULTIES[bool(words_filter) + bool(words_map)],
        prompt=prompt,
        answer=source,
        expected=(name, *code.run_reference(condition, mapped, done[2])),
        key=f"{words_filter.format(k=k)}/{words_map.format(j=j)}/{reduce}/{name}",
    )
