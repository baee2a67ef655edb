"""Commit rules: where tokens may commit in a step, and which of the proposed tokens do.

Responsible for the schedule's quota and for a probability. Not responsible for the forward pass (see `step`).
Both commit all that is left in the last planned step. Masks are [B, C], one answer per row; ties go to the
lower position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.schedules import Schedule
from cloud_anchor.sampling.scores import Proposal, Score, confidence
from cloud_anchor.sampling.state import ForwardPass


@dataclass(frozen=True)
class Proposed:
    """A token for every masked position of a batch, before any commits.

    proposal: of the N masked positions. score: by which they are ordered. allowed: bool [B, C], positions
    that may commit.
    """

    run: ForwardPass
    proposal: Proposal
    score: Score
    allowed: Tensor

    def scores(self, score: Score) -> Tensor:
        """Scores [B, C], -inf where nothing may commit."""
        nothing = torch.full(self.allowed.shape, -torch.inf, device=self.allowed.device)
        return self.run.spread(score(self.proposal), nothing).masked_fill(~self.allowed, -torch.inf)


@dataclass(frozen=True)
class Quota:
    """As many of the best-scored positions as the schedule says."""

    config: DenoiseConfig
    schedule: Schedule

    def open(self, steps: Sequence[int], masked: Tensor) -> tuple[Tensor, Tensor]:
        """The masked positions that may commit in the next step of each row, bool [B, C], and the share of
        them that the schedule commits, float32 [B]. steps: run so far. masked: bool [B, C].
        """
        total, canvas = self.config.total_steps, self.config.canvas
        ends, shares = zip(*(self.schedule.at(step, total, canvas) for step in steps), strict=True)
        return _before(masked, torch.tensor(ends, device=masked.device)), torch.stack(shares)

    def choose(self, proposed: Proposed) -> Tensor:
        """The positions that commit, bool [B, C]."""
        run = proposed.run
        count = quotas(run.open, run.shares, up=self.schedule.round_up)
        return best(proposed.scores(proposed.score), proposed.allowed, count)


@dataclass(frozen=True)
class Probability:
    """Every position whose proposed token has at least a probability, and the most probable one in any case
    (Fast-dLLM, arXiv 2505.22618). A block opens where all before it is committed.
    """

    config: DenoiseConfig
    schedule: Schedule

    def open(self, steps: Sequence[int], masked: Tensor) -> tuple[Tensor, Tensor]:
        last = torch.tensor([step == self.config.total_steps - 1 for step in steps], device=masked.device)
        size = self.schedule.block_size(self.config.canvas)
        ends = (masked.int().argmax(1) // size + 1) * size
        return _before(masked, ends.masked_fill(last, self.config.canvas)), last.float()

    def choose(self, proposed: Proposed) -> Tensor:
        assert not isinstance(self.config.commit, str)
        sure = proposed.scores(confidence).exp()
        return above(sure, proposed.allowed, self.config.commit) | proposed.run.last[:, None]


Rule = Quota | Probability


def commit_rule(config: DenoiseConfig, schedule: Schedule) -> Rule:
    """The rule of a run; "auto" is the quota."""
    return Quota(config, schedule) if isinstance(config.commit, str) else Probability(config, schedule)


def _before(masked: Tensor, ends: Tensor) -> Tensor:
    """The masked positions of each row before its end, int64 [B]."""
    return masked & (torch.arange(masked.shape[1], device=masked.device) < ends[:, None])


def quotas(masked: Tensor, shares: Tensor, *, up: bool = False) -> Tensor:
    """The number of positions per row that commit, int64 [B]: the integer part of masked count times share.

    up: rounded up instead.

    masked: bool [B, C]. shares: float32 [B]; a share of 1 takes all that is left.
    """
    exact = masked.sum(1).to(torch.float32) * shares.to(masked.device)
    # A product that is whole in exact arithmetic may be a little more in float32.
    return (exact - 1e-3).ceil().to(torch.long) if up else exact.to(torch.long)


def best(scores: Tensor, allowed: Tensor, quota: Tensor) -> Tensor:
    """The `quota` [B] best-scored of the allowed positions of each row, bool [B, C].

    The sort is stable, so ties go to the lower position. On CUDA the published sampler's topk does the same;
    on a CPU its ties are in no defined order.
    """
    return allowed & (_ranks(scores.masked_fill(~allowed, -torch.inf)) < quota[:, None])


def above(scores: Tensor, allowed: Tensor, threshold: float) -> Tensor:
    """Every allowed position with a score of at least `threshold`, and the best one in any case.

    Fast-dLLM's parallel decoding (arXiv 2505.22618, section 3.3): tokens that are each nearly certain are
    nearly independent, so they may commit in one step.
    """
    one = torch.ones(len(scores), dtype=torch.long, device=scores.device)
    return best(scores, allowed, one) | (allowed & (scores >= threshold))


def _ranks(scores: Tensor) -> Tensor:
    """Ranks of the scores in each row, 0 for the highest: int64 [B, C]."""
    order = scores.sort(dim=1, descending=True, stable=True).indices
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)
