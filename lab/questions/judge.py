"""Correctness of answers, by kind of item.

Responsible for finding a number, a letter or a function in a text. Not responsible for running code (see
`sandbox`) or for problems of the project's own worlds (`lab.pairs.tiny.check`, `lab.pairs.testbed.grading`).
"""

from __future__ import annotations

import re

from lab.pairs.problem import Problem
from lab.pairs.testbed.grading import coverage as share_told
from lab.pairs.testbed.grading import is_correct
from lab.pairs.tiny.check import is_right as tiny_is_right
from lab.questions import sandbox
from lab.questions.items import Item

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_STATED = re.compile(
    r"(?:answer is|answer:|####|\\boxed\{)\s*\**\s*\$?\s*(-?\d[\d,]*(?:\.\d+)?)", re.IGNORECASE
)
_LETTER = re.compile(r"(?i:answer is|answer:|option|choice)\s*\**\s*\(?(?![Aa] [a-z])([A-Ea-e])\b")
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def is_right(item: Item, text: str) -> bool:
    """True for an exact match of the answer, or for code that passes the item's own tests."""
    match item.kind:
        case "tiny":
            return tiny_is_right(_problem(item), text)
        case "testbed":
            return is_correct(_problem(item), text)
        case "number":
            return _same_number(stated_number(text), str(item.key["number"]))
        case "letter":
            return stated_letter(text) == str(item.key["letter"])
        case "code":
            return sandbox.passes(program(item, text))
    raise ValueError(
        f"item {item.id}: expected kind tiny, testbed, number, letter or code, found {item.kind!r}"
    )


def coverage(item: Item, text: str) -> float:
    """Share of what was asked for that is told, 0 to 1; `is_right` for other questions than the testbed's."""
    return share_told(_problem(item), text) if item.kind == "testbed" else float(is_right(item, text))


def _problem(item: Item) -> Problem:
    return Problem(**{**item.key, "expected": tuple(item.key["expected"])})


def stated_number(text: str) -> str | None:
    """The last number stated as the answer, else the last number; None without a number."""
    found = _STATED.findall(text) or _NUMBER.findall(text)
    return found[-1].replace(",", "") if found else None


def _same_number(found: str | None, expected: str) -> bool:
    try:
        return found is not None and float(found) == float(expected)
    except ValueError:
        return False


def stated_letter(text: str) -> str | None:
    """The last option stated as the answer, else the first single letter A to E that is not the article;
    None without one.
    """
    said = _LETTER.findall(text)
    if said:
        return str(said[-1]).upper()
    alone = re.search(r"(?<![A-Za-z'])(?!A [a-z])([A-E])(?![A-Za-z'])", text)
    return alone[1] if alone else None


def program(item: Item, text: str) -> str:
    """The answer as a program that checks itself: the function, the item's tests, and their call."""
    name = item.key["entry_point"]
    fenced = _FENCE.findall(text)
    code = next((block for block in fenced if f"def {name}" in block), fenced[0] if fenced else text)
    if f"def {name}" in code:
        opening = item.key["prompt"].split(f"def {name}")[0]  # its imports and helpers
        code = f"{opening}\n{code}"
    else:
        code = item.key["prompt"] + code
    return f"{code}\n\n{item.key['test']}\n\ncheck({name})\n"
