"""The losses of a block drafter against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from lab.drafting.losses import (
    chain_length,
    drafter_loss,
    first_error_focal,
    position_weights,
    weighted_cross_entropy,
)

# Two blocks of three places over three tokens. The probability of the target at each place:
#   block 0: 0.5 (likeliest), 0.2 (not), 0.25 (not); block 1: 0.5, 0.8, 0.5, all likeliest.
ODDS = torch.tensor(
    [
        [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.25, 0.25, 0.5]],
        [[0.1, 0.5, 0.4], [0.1, 0.1, 0.8], [0.5, 0.2, 0.3]],
    ]
)
LOG = ODDS.log()
TARGETS = torch.tensor([[0, 1, 1], [1, 2, 0]])


def test_weights_fall_by_e_in_gamma_places() -> None:
    assert position_weights(4, 2.0).tolist() == pytest.approx(
        [1, math.exp(-0.5), math.exp(-1), math.exp(-1.5)]
    )
    with pytest.raises(ValueError, match="gamma: expected a number above 0, found 0"):
        position_weights(3, 0)


def test_cross_entropy_by_place() -> None:
    plain = -(math.log(0.5 * 0.2 * 0.25) + math.log(0.5 * 0.8 * 0.5)) / 6
    assert float(weighted_cross_entropy(LOG, TARGETS)) == pytest.approx(plain)
    halves = torch.tensor([1.0, 0.5, 0.25])
    first = math.log(0.5) + 0.5 * math.log(0.2) + 0.25 * math.log(0.25)
    second = math.log(0.5) + 0.5 * math.log(0.8) + 0.25 * math.log(0.5)
    found = float(weighted_cross_entropy(LOG, TARGETS, halves))
    assert found == pytest.approx(-(first + second) / 1.75 / 2)
    assert float(weighted_cross_entropy(LOG, TARGETS, torch.ones(3))) == pytest.approx(plain)


def test_the_focal_term_is_that_of_the_first_error_only() -> None:
    assert float(first_error_focal(LOG, TARGETS)) == pytest.approx(-math.log(0.2) / 2)
    halves = torch.tensor([1.0, 0.5, 0.25])
    assert float(first_error_focal(LOG, TARGETS, halves)) == pytest.approx(-0.5 * math.log(0.2) / 2)
    assert float(first_error_focal(LOG[1:], TARGETS[1:])) == 0
    logits = LOG.clone().requires_grad_()
    first_error_focal(logits, TARGETS).backward()
    assert logits.grad is not None
    assert logits.grad.nonzero().tolist() == [[0, 1, 1]]


def test_the_chain_term_is_the_expected_accepted_share() -> None:
    first, second = 0.5 + 0.5 * 0.2, 0.5 + 0.5 * 0.8
    assert float(chain_length(LOG, TARGETS)) == pytest.approx((first + second) / 2 / 2)
    with pytest.raises(ValueError, match="at least 2 tokens, found 1"):
        chain_length(LOG[:, :1], TARGETS[:, :1])


def test_the_chain_term_is_the_mean_length_of_drawn_drafts() -> None:
    """Of drafts drawn from q, the leading tokens that are the target's, the last place not counted."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.multinomial(ODDS[0], 40_000, replacement=True, generator=generator).T
    right = (drawn == TARGETS[0])[:, :2].long().cumprod(1).sum(1).float()
    assert float(chain_length(LOG[:1], TARGETS[:1])) == pytest.approx(float(right.mean()) / 2, abs=0.01)


def test_the_terms_add_up() -> None:
    weights = position_weights(3, 4.0)
    expected = (
        weighted_cross_entropy(LOG, TARGETS, weights)
        + 0.3 * first_error_focal(LOG, TARGETS, weights)
        - 40 * chain_length(LOG, TARGETS)
    )
    assert float(drafter_loss(LOG, TARGETS, gamma=4.0, focal=0.3, chain=40)) == pytest.approx(float(expected))
    assert float(drafter_loss(LOG, TARGETS)) == pytest.approx(float(weighted_cross_entropy(LOG, TARGETS)))


def test_places_behind_the_answers_end_count_nothing() -> None:
    valid = torch.tensor([[True, True, False], [True, False, False]])
    plain = (-math.log(0.5 * 0.2) / 2 - math.log(0.5)) / 2
    assert float(weighted_cross_entropy(LOG, TARGETS, valid=valid)) == pytest.approx(plain)
    assert float(first_error_focal(LOG, TARGETS, valid=valid)) == pytest.approx(-math.log(0.2) / 2)
    assert float(first_error_focal(LOG, TARGETS, valid=valid[1:].expand(2, 3))) == 0
    assert float(chain_length(LOG, TARGETS, valid)) == pytest.approx((0.5 + 0.5 * 0.2 + 0.5) / 2 / 2)
    logits = LOG.clone().requires_grad_()
    drafter_loss(logits, TARGETS, valid=valid, gamma=2.0, focal=0.3, chain=40).backward()
    assert logits.grad is not None
    assert bool((logits.grad[~valid] == 0).all())
    assert bool((logits.grad[valid] != 0).any(-1).all())


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"found \(2, 3, 3\) and \(2, 2\)"):
        drafter_loss(LOG, TARGETS[:, :2])
