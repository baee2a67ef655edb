"""The kinds of questions: functions `draw(scene) -> Problem`; every answer has a part that is checked."""

from __future__ import annotations

from collections.abc import Callable

from cloud_anchor.testbed.kinds import (
    comparison,
    definition,
    fact,
    function,
    multiple_choice,
    profile,
    sums,
)
from cloud_anchor.testbed.scene import Scene
from cloud_anchor.tiny.problem import Problem

KINDS: dict[str, Callable[[Scene], Problem]] = {
    "fact": fact.draw,
    "comparison": comparison.draw,
    "definition": definition.draw,
    "profile": profile.draw,
    "sum": sums.draw,
    "choice": multiple_choice.draw,
    "function": function.draw,
}
