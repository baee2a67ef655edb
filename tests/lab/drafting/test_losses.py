"""The loss of a block drafter against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from lab.drafting.losses import drafter_loss

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
ALL = torch.ones(2, 3, dtype=torch.bool)
SOME = torch.tensor([[True, True, False], [True, False, False]])
GAMMA = 1 / math.log(2)
"""Each place weighs half as much as the one before."""


def loss(valid: torch.Tensor = ALL, **terms: float) -> float:
    return float(drafter_loss(LOG, TARGETS, valid, **terms))


def term(name: str, valid: torch.Tensor = ALL, **others: float) -> float:
    """What a term of weight 1 adds."""
    return loss(valid, **others, **{name: 1.0}) - loss(valid, **others)


def test_cross_entropy_by_place() -> None:
    assert loss() == pytest.approx(-(math.log(0.5 * 0.2 * 0.25) + math.log(0.5 * 0.8 * 0.5)) / 6)
    first = math.log(0.5) + 0.5 * math.log(0.2) + 0.25 * math.log(0.25)
    second = math.log(0.5) + 0.5 * math.log(0.8) + 0.25 * math.log(0.5)
    assert loss(gamma=GAMMA) == pytest.approx(-(first + second) / 1.75 / 2)
    assert loss(SOME) == pytest.approx((-math.log(0.5 * 0.2) / 2 - math.log(0.5)) / 2)


def test_the_focal_term_is_that_of_the_first_error_only() -> None:
    assert term("focal") == pytest.approx(-math.log(0.2) / 2)
    assert term("focal", gamma=GAMMA) == pytest.approx(-0.5 * math.log(0.2) / 2)
    assert term("focal", SOME) == pytest.approx(-math.log(0.2) / 2)
    assert term("focal", SOME[1:].expand(2, 3)) == 0, "the errors are behind the answer's end"


def test_the_chain_term_is_the_mean_length_of_drawn_drafts() -> None:
    """Of drafts drawn from q, the leading tokens that are the target's, the last place not counted."""
    first, second = 0.5 + 0.5 * 0.2, 0.5 + 0.5 * 0.8
    assert term("chain") == pytest.approx(-(first + second) / 2 / 2)
    assert term("chain", SOME) == pytest.approx(-(first + 0.5) / 2 / 2)
    generator = torch.Generator().manual_seed(1)
    drawn = torch.multinomial(ODDS[0], 40_000, replacement=True, generator=generator).T
    right = (drawn == TARGETS[0])[:, :2].long().cumprod(1).sum(1).float()
    assert first == pytest.approx(float(right.mean()), abs=0.02)


def test_the_terms_add_up_and_places_behind_the_end_have_no_gradient() -> None:
    parts = loss(gamma=GAMMA) + 0.3 * term("focal", gamma=GAMMA) + 40 * term("chain")
    assert loss(gamma=GAMMA, focal=0.3, chain=40) == pytest.approx(parts, rel=1e-4)
    logits = LOG.clone().requires_grad_()
    drafter_loss(logits, TARGETS, SOME, gamma=2.0, focal=0.3, chain=40).backward()
    assert logits.grad is not None
    assert bool((logits.grad[~SOME] == 0).all())
    assert bool((logits.grad[SOME] != 0).any(-1).all())
