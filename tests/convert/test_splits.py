"""The shorthands of published tokenizers give the same ids when they are written as expressions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convert.source.tokenizer import with_plain_splits
from edge_runtime.text.tokenizer import Tokenizer
from tests.checkpoints import tokenizer_json

LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}
GPT2 = {**tokenizer_json(), "pre_tokenizer": LEVEL}
SMOLLM2 = {**tokenizer_json(), "pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS, LEVEL]}}
PAIRS = [
    (Tokenizer.from_json(json.dumps(data)), Tokenizer.from_json(with_plain_splits(json.dumps(data))))
    for data in (GPT2, SMOLLM2)
]


@settings(deadline=None)
@given(st.text() | st.text(st.sampled_from("ab 19²½Ⅷ٣'s\t\n\r\u00a0é日🎈"), max_size=40))
def test_the_ids_are_the_same(text: str) -> None:
    for before, after in PAIRS:
        assert after.encode(text) == before.encode(text)


def test_the_form_is_the_one_that_every_device_reads() -> None:
    for data, count in ((GPT2, 1), (SMOLLM2, 2)):
        steps = json.loads(with_plain_splits(json.dumps(data)))["pre_tokenizer"]["pretokenizers"]
        assert [step["type"] for step in steps] == ["Split"] * count + ["ByteLevel"]
        assert steps[-1]["use_regex"] is False


@pytest.mark.parametrize(
    "step",
    [None, {**LEVEL, "add_prefix_space": True}, {"type": "Whitespace"}, tokenizer_json()["pre_tokenizer"]],
)
def test_anything_else_is_left_as_it_is(step: object) -> None:
    text = json.dumps({**GPT2, "pre_tokenizer": step})
    assert with_plain_splits(text) == text
