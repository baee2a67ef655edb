"""Templates with alternatives."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.pairs.testbed.wording import expand, pattern, say, sentence, variants

WORDS = st.text("abc {}?.", max_size=6).map(lambda text: text.replace("{", "").replace("}", "") + "{v}")
TEMPLATES = st.recursive(
    WORDS,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda many: f"[{'|'.join(many)}]")
        | st.tuples(inner, inner).map("".join)
    ),
    max_leaves=6,
)


def test_an_alternative_is_drawn_at_each_bracket() -> None:
    assert set(variants("[a|b [c|]]d")) == {"ad", "b cd", "b d"}


@given(TEMPLATES, st.integers(0, 99))
def test_what_is_drawn_is_a_variant_and_matches_the_pattern(template: str, seed: int) -> None:
    text = expand(template, random.Random(seed))
    assert text in set(variants(template))
    filled = say([text], random.Random(0), {"v": "x y"})
    assert re.fullmatch(pattern(template, {"v": "x y"}), filled)


def test_a_pattern_takes_its_template_literally() -> None:
    assert not re.fullmatch(pattern("{v}. [So|Hence]", {"v": "1"}), "1, So")


@pytest.mark.parametrize(
    ("text", "said"), [("it is", "It is."), ("Is it?", "Is it?"), ("2 + 2 = 4", "2 + 2 = 4.")]
)
def test_a_sentence_has_a_capital_and_an_end(text: str, said: str) -> None:
    assert sentence(text) == said
