"""The initial counts of codec predictive, counted on the shipped edge model."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from edge_runtime.runtime import EdgeRuntime
from lab.formats import count_codes
from payload.codecs import initial_counts, question_counts
from payload.codecs.adaptive_model import FORMAT_COUNTS, QUESTION_COUNTS
from payload.codecs.rank_codes import BUCKETS, MODES
from tests.shipped import TINY_BUNDLE


def test_counts_have_the_form_of_the_formats_and_change_nothing() -> None:
    edge = EdgeRuntime.open(TINY_BUNDLE, threads=1)
    texts = list(count_codes.observed(edge, 4, seed=1))
    tokens = edge.bundle.contract.vocab_size + 1
    first = count_codes.count(texts, tokens)
    second = count_codes.count(texts, tokens, first)
    for field in fields(FORMAT_COUNTS):
        expected = _form(getattr(FORMAT_COUNTS, field.name))
        assert _form(getattr(first, field.name)) == _form(getattr(second, field.name)) == expected
    assert _form(FORMAT_COUNTS.modes) == ((MODES,) * 2,) * BUCKETS
    assert count_codes.count(texts, tokens) == first, "counting leaves the format's counts as they are"


def test_the_module_is_what_the_program_writes() -> None:
    shipped = Path(initial_counts.__file__).read_text("utf-8")
    assert count_codes.answer_module(FORMAT_COUNTS, 400) == shipped
    shipped = Path(question_counts.__file__).read_text("utf-8")
    assert count_codes.question_module(QUESTION_COUNTS, question_counts.MADE_OF) == shipped
    for field in fields(FORMAT_COUNTS):
        assert _form(getattr(QUESTION_COUNTS, field.name)) == _form(getattr(FORMAT_COUNTS, field.name))


def _form(table: Any) -> Any:
    """The table's nesting, with the length of every distribution; all counts must be at least 1."""
    if all(isinstance(each, int) for each in table):
        assert min(table) >= 1
        return len(table)
    return tuple(_form(each) for each in table)
