"""The bytes of decisions: sizes, how near they are to the exact distribution, and what a reader refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload import PayloadError
from payload.decisions import HEAD_BYTES, LITTLE, STEPS, decode_decisions, encode_decisions

FORM, TEXT = bytes(range(32)), "The line is down."


def distributions(size: int) -> st.SearchStrategy[list[float]]:
    weights = st.lists(st.floats(1e-6, 1.0), min_size=size, max_size=size)
    return weights.map(lambda found: [each / sum(found) for each in found])


def divergence(exact: list[float], read: list[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(exact, read, strict=True))


@given(st.data(), st.lists(st.integers(2, 64), min_size=1, max_size=8))
def test_what_is_written_is_read(data: st.DataObject, sizes: list[int]) -> None:
    asked = data.draw(st.sets(st.integers(0, len(sizes) - 1)))
    exact = {at: data.draw(distributions(sizes[at])) for at in asked}
    read = decode_decisions(encode_decisions(FORM, TEXT, sizes, exact), FORM, TEXT, sizes)
    assert read.keys() == exact.keys()
    for at, found in read.items():
        assert sum(found) == pytest.approx(1)
        assert exact[at][int(np.argmax(found))] == pytest.approx(max(exact[at]), abs=0.12)
        if sizes[at] <= 4:
            assert divergence(exact[at], found) < 0.02


def test_a_question_of_four_options_takes_less_than_two_bytes_and_a_form_of_four_at_most_eight() -> None:
    random = np.random.default_rng(0)
    single, forms = [], []
    for spread in (0.1, 0.3, 1.0):
        for _ in range(200):
            found = {at: random.dirichlet([spread] * 4).tolist() for at in range(4)}
            forms.append(len(encode_decisions(FORM, TEXT, [4] * 4, found)) - HEAD_BYTES)
            single.append(len(encode_decisions(FORM, TEXT, [4], {0: found[0]})) - HEAD_BYTES)
    assert np.mean(single) <= 2
    assert max(forms) <= 8
    assert HEAD_BYTES <= 6


def test_no_mass_is_so_near_the_bound_that_machines_could_differ() -> None:
    for size in (2, 3, 4, *range(5, 65)):
        masses = [1.0]
        for left, steps in zip(range(size, 1, -1), STEPS, strict=False):
            least = math.asin(math.sqrt(1 / left))
            shares = [math.sin(least + (k + 0.5) * (math.pi / 2 - least) / steps) ** 2 for k in range(steps)]
            masses = [mass * (1 - share) for mass in masses for share in shares]
            assert min(abs(mass - LITTLE) for mass in masses) > 1e-9


@given(st.binary(max_size=40))
def test_strange_bytes_are_refused(data: bytes) -> None:
    sizes = [2, 4, 9]
    good = encode_decisions(FORM, TEXT, sizes, {0: [0.5, 0.5]})
    try:
        decode_decisions(data, FORM, TEXT, sizes)
    except PayloadError:
        assert data != good


@pytest.mark.parametrize("at", range(HEAD_BYTES))
def test_a_changed_head_another_form_and_another_text_are_refused(at: int) -> None:
    data = encode_decisions(FORM, TEXT, [4, 3], {0: [0.7, 0.1, 0.1, 0.1], 1: [0.2, 0.2, 0.6]})
    changed = bytearray(data)
    changed[at] ^= 0x10
    others = ((bytes(changed), FORM, TEXT), (data, FORM[::-1], TEXT), (data, FORM, "The line is up."))
    for found, form, text in others:
        with pytest.raises(PayloadError):
            decode_decisions(found, form, text, [4, 3])


@pytest.mark.parametrize("found", [[0.5], [0.9, 0.9], [0.5, 0.5, 0.0]])
def test_what_is_no_distribution_is_not_written(found: list[float]) -> None:
    with pytest.raises(PayloadError):
        encode_decisions(FORM, TEXT, [2], {0: found})
