"""The synthetic world and its problems."""

from __future__ import annotations

import itertools

import pytest

from lab.pairs.problem import Problem
from lab.pairs.tiny.check import is_right
from lab.pairs.tiny.tasks import FAMILIES, held_out_problems, problems


def some(family: str, count: int, held_out: bool = False) -> list[Problem]:
    return list(itertools.islice(problems(family, 3, held_out=held_out), count))


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_answers_are_right_and_others_are_not(family: str) -> None:
    chosen = some(family, 4 if family == "code" else 12)  # functions are executed, which takes longer
    assert all(is_right(p, p.answer) for p in chosen)
    assert not any(is_right(p, "") for p in chosen)
    other = [is_right(p, q.answer) for p, q in itertools.pairwise(chosen) if p.expected != q.expected]
    assert sum(other) <= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_training_and_test_problems_never_meet(family: str) -> None:
    train = {p.key for p in some(family, 400)}
    test = {p.key for p in some(family, 60, held_out=True)}
    assert not train & test


def test_the_test_set_is_distinct_balanced_and_repeatable() -> None:
    chosen = held_out_problems(80)
    assert chosen == held_out_problems(80)
    assert len({p.prompt for p in chosen}) == 80
    assert all(p.held_out for p in chosen)
    assert {f: sum(p.family == f for p in chosen) for f in FAMILIES} == dict.fromkeys(FAMILIES, 20)


@pytest.mark.parametrize(
    "source",
    [
        "def solve(xs):\n    return open('/etc/passwd').read()",
        "import os\ndef solve(xs):\n    return os.getcwd()",
        "def solve(xs):\n    return [0] * 10 ** 9",
        "def solve(xs:",
        "\x00",
    ],
)
def test_code_that_reads_files_or_breaks_is_wrong_and_nothing_more(source: str) -> None:
    problem = next(p for p in some("code", 200) if p.expected[0] == "solve")
    assert is_right(problem, source) is False
