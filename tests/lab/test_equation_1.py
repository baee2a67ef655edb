"""Equation 1 and plain pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.experiments.paper.sending import from_pairs, to_pairs, widths
from lab.experiments.paper.timing import equation_1
from payload import AnchorSet, Contract

SPECIAL = {"<|endoftext|>": 151_643, "<|im_end|>": 151_645}
CONTRACT = Contract(vocab_size=151_643, vocab_hash="0" * 64, special=SPECIAL, template_hash="0" * 64)


def test_equation_1_in_flops_and_by_parameters() -> None:
    found = equation_1(13, 128, prompt=60, canvas=512, length=100, weights=(14_000, 1_000))
    assert found["cloud, T_partial C_DLM, GFLOP"] == pytest.approx(13 * 572 * 2 * 14_000 / 1e9)
    assert found["device, L C_AR, GFLOP"] == pytest.approx(160 * 2 * 1_000 / 1e9)
    assert found["both sides / full run, in FLOPs"] == pytest.approx(13 / 128, abs=0.001), (
        "the device's part is nearly nothing"
    )
    # C_AR = C_DLM / 14: a little above the paper's 10 to 15%.
    assert found["both sides / full run, C_AR / C_DLM by parameters alone"] == pytest.approx(0.157, abs=0.001)


@given(st.dictionaries(st.integers(0, 511), st.integers(0, 151_642), max_size=40))
def test_pairs_are_read_back(tokens: dict[int, int]) -> None:
    anchors = AnchorSet.of(tokens, 512, CONTRACT)
    data = to_pairs(anchors, CONTRACT)
    assert len(data) == 5 * len(tokens)
    assert from_pairs(data, 512, CONTRACT) == tokens


def test_the_width_of_a_pair_is_whole_bytes() -> None:
    assert [widths(*sizes) for sizes in ((512, 151_643), (256, 256), (257, 65_537), (1, 1))] == [
        (2, 3),
        (1, 1),
        (2, 3),
        (1, 1),
    ]
    with pytest.raises(ValueError, match="5"):
        from_pairs(b"123", 512, CONTRACT)
