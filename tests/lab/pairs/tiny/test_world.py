"""The synthetic world and its problems."""

from __future__ import annotations

import itertools
import random

import pytest
from tokenizers import Tokenizer

from cloud_anchor.shipped import PAIRS
from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.tiny.check import is_right
from lab.pairs.tiny.tasks import FAMILIES, held_out_problems, problems
from lab.pairs.tiny.world import FACTS, TOWNS

TOKENIZER = PAIRS["tiny"].checkpoint / "tokenizer.json"


def some(family: str, count: int, held_out: bool = False) -> list[Problem]:
    return list(itertools.islice(problems(family, 3, held_out=held_out), count))


def test_mayors_and_years_name_one_town_each() -> None:
    for attribute in ("mayor", "year"):
        assert len({FACTS[town][attribute] for town in TOWNS}) == len(TOWNS)


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_answers_are_right_and_others_are_not(family: str) -> None:
    chosen = some(family, 4 if family == "code" else 12)  # functions are executed, which takes longer
    assert all(is_right(p, p.answer) for p in chosen)
    assert not any(is_right(p, "") for p in chosen)
    other = [is_right(p, q.answer) for p, q in itertools.pairwise(chosen) if p.expected != q.expected]
    assert sum(other) <= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_all_difficulties_and_several_phrasings(family: str) -> None:
    chosen = some(family, 150)
    assert {p.difficulty for p in chosen} == set(DIFFICULTIES)
    assert len({p.answer.split()[0] for p in chosen} | {p.prompt.split()[0] for p in chosen}) >= 3


@pytest.mark.parametrize("family", FAMILIES)
def test_training_and_test_problems_never_meet(family: str) -> None:
    train = {p.key for p in some(family, 400)}
    test = {p.key for p in some(family, 60, held_out=True)}
    assert not train & test


def test_held_out_is_about_one_in_ten() -> None:
    rng = random.Random(0)
    share = sum(FAMILIES["arithmetic"](rng).held_out for _ in range(2000)) / 2000
    assert 0.07 < share < 0.13


def test_the_test_set_is_distinct_balanced_and_repeatable() -> None:
    chosen = held_out_problems(80)
    assert chosen == held_out_problems(80)
    assert len({p.prompt for p in chosen}) == 80
    assert all(p.held_out for p in chosen)
    assert {f: sum(p.family == f for p in chosen) for f in FAMILIES} == dict.fromkeys(FAMILIES, 20)


@pytest.mark.skipif(not TOKENIZER.exists(), reason="the shipped tokenizer is missing")
def test_answers_fit_the_canvas_and_descriptions_are_long() -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    for family in FAMILIES:
        lengths = [len(tokenizer.encode(p.answer).ids) for p in some(family, 300)]
        assert max(lengths) < 128
        if family == "description":
            assert min(lengths) >= 55
            assert sorted(lengths)[len(lengths) // 10] >= 60


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
