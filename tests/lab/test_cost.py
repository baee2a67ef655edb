"""Equation 1 and plain pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.cost import equation_1, pass_flops, pipeline_flops
from lab.formats.pairs import from_pairs, to_pairs, widths
from payload import AnchorSet, Contract

SPECIAL = {"<|endoftext|>": 151_643, "<|im_end|>": 151_645}
CONTRACT = Contract(vocab_size=151_643, vocab_hash="0" * 64, special=SPECIAL, template_hash="0" * 64)


def test_equation_1_with_the_papers_figures() -> None:
    found = equation_1(13, 128, 100, 42.0, 18.3)  # Table 6, milliseconds
    assert found.cloud + found.device == pytest.approx(2376, abs=1)
    assert found.full / (found.cloud + found.device) == pytest.approx(2.3, abs=0.05)
    assert found.cloud_share == pytest.approx(1 - 0.897, abs=0.002)
    # By parameters alone, C_AR = C_DLM / 14, the share is a little above the paper's 10 to 15%.
    assert equation_1(13, 128, 100, 1, 1 / 14).share == pytest.approx(0.157, abs=0.001)
    with pytest.raises(ValueError, match="1 to 128"):
        equation_1(0, 128, 100, 1, 1)


def test_in_flops_a_diffusion_pass_runs_the_canvas_and_an_edge_pass_a_token() -> None:
    found = pipeline_flops(13, 128, prompt=60, canvas=512, length=100, parameters=7_000, edge_parameters=500)
    assert found.cloud == 13 * pass_flops(7_000, 572) == 13 * 2 * 7_000 * 572
    assert found.device == 160 * 2 * 500
    assert found.share == pytest.approx(13 / 128, abs=0.001), "the device's part is nearly nothing"


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
    with pytest.raises(ValueError, match="pairs of 5 bytes"):
        from_pairs(b"123", 512, CONTRACT)
