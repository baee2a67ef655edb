"""Commit rules: where tokens may commit in a step, and which of the proposed tokens do.

Responsible for the schedule's quota and for a probability. Not responsible for the forward pass (see `step`)
or for arithmetic on positions (see `unmasking`). Both commit all that is left in the last planned step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.schedules import Schedule
from cloud_anchor.sampling.scores import Proposal, Score, confidence
from cloud_anchor.sampling.state import ForwardPass, State


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


class Rule(Protocol):
    """What a step commits."""

    def open(self, steps: Sequence[int], masked: Tensor) -> tuple[Tensor, Tensor]:
        """The masked positions that may commit in the next step of each row, bool [B, C], and the share of
        them that the schedule commits, float32 [B]. steps: run so far. masked: bool [B, C].
        """

    def choose(self, proposed: Proposed, state: State) -> Tensor:
        """The positions that commit, bool [B, C]."""


def commit_rule(config: DenoiseConfig, schedule: Schedule) -> Rule:
    """The rule of a run; "auto" is the quota."""
    return Quota(config, schedule) if isinstance(config.commit, str) else Probability(config, schedule)


@dataclass(frozen=True)
class Quota:
    """As many of the best-scored positions as the schedule says, or a draw of as many."""

    config: DenoiseConfig
    schedule: Schedule

    def open(self, steps: Sequence[int], masked: Tensor) -> tuple[Tensor, Tensor]:
        total, canvas = self.config.total_steps, self.config.canvas
        ends, shares = zip(*(self.schedule.at(step, total, canvas) for step in steps), strict=True)
        return _before(masked, torch.tensor(ends, device=masked.device)), torch.stack(shares)

    def choose(self, proposed: Proposed, state: State) -> Tensor:
        run, temperature = proposed.run, self.config.order_temperature
        count = unmasking.quotas(run.open, run.shares, up=self.schedule.round_up)
        scores = proposed.scores(proposed.score)
        if temperature:
            return _draw_positions(state, scores, count, temperature) | run.last[:, None]
        return unmasking.best(scores, proposed.allowed, count)


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

    def choose(self, proposed: Proposed, state: State) -> Tensor:
        assert not isinstance(self.config.commit, str)
        sure = proposed.scores(confidence).exp()
        return unmasking.above(sure, proposed.allowed, self.config.commit) | proposed.run.last[:, None]


def _before(masked: Tensor, ends: Tensor) -> Tensor:
    """The masked positions of each row before its end, int64 [B]."""
    return masked & (torch.arange(masked.shape[1], device=masked.device) < ends[:, None])


def _draw_positions(state: State, scores: Tensor, quota: Tensor, temperature: float) -> Tensor:
    """Positions drawn in proportion to softmax(score / temperature), over prompt and canvas as published."""
    lengths = [len(prompt) for prompt in state.prompts]
    rows = [pad(score, (length, 0), value=-torch.inf) for score, length in zip(scores, lengths, strict=True)]
    free: list[int] = (scores > -torch.inf).sum(1).tolist()
    wanted = [min(count, most) for count, most in zip(quota.tolist(), free, strict=True)]
    chosen = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    picks = unmasking.lottery(rows, wanted, temperature, state.generators)
    for row, (index, length) in enumerate(zip(picks, lengths, strict=True)):
        # A share that underflows to 0 can still be drawn, and the prompt's are 0.
        chosen[row, index[index >= length] - length] = True
    return chosen & (scores > -torch.inf)
