"""The kinds of questions: functions `draw(scene) -> Problem`; every answer has a part that is checked."""

from __future__ import annotations

from collections.abc import Callable

from lab.pairs.problem import Problem
from lab.pairs.testbed.kinds import comparison, profile, short, sums
from lab.pairs.testbed.scene import Scene

KINDS: dict[str, Callable[[Scene], Problem]] = {
    "fact": short.fact,
    "comparison": comparison.draw,
    "definition": short.definition,
    "profile": profile.draw,
    "sum": sums.draw,
    "choice": short.choice,
    "function": short.function,
}
