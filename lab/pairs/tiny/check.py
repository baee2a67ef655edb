"""Correctness of answers to tiny problems; functions are run in the laboratory's sandbox."""

from __future__ import annotations

import re

from lab.pairs.problem import Problem
from lab.pairs.tiny.tasks.code import INPUTS
from lab.questions import sandbox


def is_right(problem: Problem, text: str) -> bool:
    """True where `text` answers `problem` correctly.

    arithmetic: the word after the last "answer is". choice: the letter after the option there. code:
    executed. description: every expected word occurs, in order.
    """
    match problem.family:
        case "code":
            name, *results = problem.expected
            return sandbox.passes(f"{text}\nassert [repr({name}(xs)) for xs in {INPUTS}] == {results}")
        case "description":
            words = iter(re.findall(r"\w+", text))
            return all(value in words for value in problem.expected)
        case _:
            found = re.findall(r"answer is (?:[a-zA-Z]+ )?(\w+)", text)
            return bool(found) and found[-1] == problem.expected[0]
