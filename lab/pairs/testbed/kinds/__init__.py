"""The kinds of questions: functions `draw(scene) -> Problem`; every answer has a part that is checked."""

from __future__ import annotations

from collections.abc import Callable

from lab.pairs.problem import Problem
from lab.pairs.testbed.kinds import (
    comparison,
    definition,
    fact,
    function,
    multiple_choice,
    profile,
    sums,
)
from lab.pairs.testbed.scene import Scene

KINDS: dict[str, Callable[[Scene], Problem]] = {
    "fact": fact.draw,
    "comparison": comparison.draw,
    "definition": definition.draw,
    "profile": profile.draw,
    "sum": sums.draw,
    "choice": multiple_choice.draw,
    "function": function.draw,
}
