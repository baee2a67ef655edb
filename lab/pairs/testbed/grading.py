"""Correctness of an answer in any wording.

Responsible for finding the checked part of an answer. Not responsible for making answers, nor for running
functions (see `lab.pairs.tiny.check`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from lab.pairs.problem import Problem
from lab.pairs.testbed.kinds.comparison import VERDICTS
from lab.pairs.testbed.wording import pattern
from lab.pairs.tiny.check import is_right

DEFINED = 0.7
"""Share of a definition's content words that a right answer has."""


def _has(text: str, value: str) -> bool:
    """True if the value occurs as separate words, whatever its capitals."""
    return re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|[.,]\d)", text, re.IGNORECASE) is not None


def _content(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}", text.lower()))


@lru_cache(1024)
def _verdict(one: str, two: str) -> re.Pattern[str]:
    """Matches every verdict over two names; its groups are those that have more, or less."""
    name = f"(?:{re.escape(one)}|{re.escape(two)})"
    forms = []
    for place, template in enumerate(VERDICTS):
        found = pattern(template, {"x": f"(?P<x{place}>{name})", "y": f"(?P<y{place}>{name})"})
        forms.append(found)
    return re.compile(rf"(?<!\w)(?:{'|'.join(forms)})(?!\w)", re.IGNORECASE)


def _verdict_is(text: str, more: str, less: str) -> bool:
    """True where the text says at least once that `more` has more, and never the opposite."""
    seen = False
    for found in _verdict(more, less).finditer(text):
        for group, name in found.groupdict().items():
            if name is not None:
                seen = True
                if (group[0] == "x") != (name.lower() == more.lower()):
                    return False
    return seen


def is_correct(problem: Problem, text: str) -> bool:
    """True where `text` answers a problem of the testbed: all that was asked for is told."""
    return coverage(problem, text) == 1


def coverage(problem: Problem, text: str) -> float:
    """Share of what was asked for that `text` covers, 0 to 1.

    fact, profile: the values asked for. comparison: both values, and the verdict, right wherever there is
    one. definition: its content words; `DEFINED` of them are all that is asked for. sum: the last number.
    choice: the option, and no letter but its own. function: executed.
    """
    match problem.family:
        case "comparison":
            more, less, *values = problem.expected
            told = [*(_has(text, value) for value in values), _verdict_is(text, more, less)]
        case "definition":
            (meaning,) = problem.expected
            wanted = _content(meaning)
            if wanted:
                return min(1.0, len(wanted & _content(text)) / (DEFINED * len(wanted)))
            told = [_has(text, meaning)]
        case "sum":
            told = [re.findall(r"\d+(?:\.\d+)?", text)[-1:] == [problem.expected[0]]]
        case "choice":
            letter, option = problem.expected
            told = [set(re.findall(r"\(([A-D])\)", text)) == {letter}, _has(text, option)]
        case "function":
            told = [is_right(replace(problem, family="code"), text)]
        case _:
            told = [_has(text, value) for value in problem.expected]
    return sum(told) / len(told)
