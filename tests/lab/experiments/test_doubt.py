"""From which doubt on answers are declined, and the questions by which that is decided."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest

from lab.experiment import About
from lab.experiments.doubt import QUESTIONS, Question, default, shown_at, tables, threshold


def record(right: bool, doubt: float | None, kind: str = "subjects") -> dict[str, Any]:
    return {"kind": kind, "right": right, "doubt": doubt, "lowest": doubt, "whole": doubt}


SEPARABLE = [record(True, 0.05), record(True, 0.1), record(False, 0.3), record(False, 0.4)]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (SEPARABLE, 0.3),
        ([*SEPARABLE, record(True, 0.5)], 0.3),  # one right answer is not worth two wrong ones
        ([*SEPARABLE, record(True, 0.5), record(True, 0.6), record(True, 0.7)], 0.3),  # all wrong for 3 in 5
        ([record(False, 0.1), record(True, 0.2)], 0.0),  # none is worth showing
        ([record(False, None), *SEPARABLE], 0.3),
    ],
)
def test_the_shares_of_right_and_wrong_answers_differ_most(
    records: list[dict[str, Any]], expected: float
) -> None:
    assert threshold(records) == expected


def test_what_is_kept_declines_as_much() -> None:
    assert default([record(True, 0.051), record(False, 0.123)]) == 0.13


def test_answers_without_a_doubt_are_declined() -> None:
    row = shown_at([*SEPARABLE, record(True, None)], 0.3)
    assert row["declined"] == pytest.approx(3 / 5)
    assert row["right answers shown"] == "2 of 3"
    assert shown_at(SEPARABLE, math.inf)["declined"] == 0


def test_tables_of_records() -> None:
    records = [r | {"kind": kind} for kind in ("subjects", "others", "nonsense") for r in SEPARABLE]
    first, kinds, scores = tables(records, About())
    assert any(str(row["not sure from"]).endswith("(kept)") for row in first.rows)
    assert [row["N"] for row in kinds.rows] == [4, 4, 4]
    assert scores.rows[0]["AUROC, wrong against right"] == 1


def test_questions_are_balanced_and_nobody_s_twice() -> None:
    kinds = tomllib.loads(QUESTIONS.read_text("utf-8"))
    assert len({len(questions) for questions in kinds.values()}) == 1
    assert sum(map(len, kinds.values())) >= 120
    assert len({text.lower() for questions in kinds.values() for text, *_ in questions}) == 144
    assert all(right for kind in ("subjects", "others") for _, *right in kinds[kind])
    assert not any(right for _, *right in kinds["nonsense"])


def test_an_answer_is_right_by_whole_words() -> None:
    asked = Question("a", "subjects", "?", ("Na", "6"))
    assert asked.is_right("It is Na.")
    assert asked.is_right("its number is 6, I think")
    assert not asked.is_right("Nauru has 16")
