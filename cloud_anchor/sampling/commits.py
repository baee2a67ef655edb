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
from torch.nn.functional import pad

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


@dataclass(frozen=True)
class Quota:
    """As many of the best-scored positions as the schedule says, or a draw of as many."""

    config: DenoiseConfig
    schedule: Schedule

    def open(self, steps: Sequence[int], masked: Tensor) -> tuple[Tensor, Tensor]:
        """The masked positions that may commit in the next step of each row, bool [B, C], and the share of
        them that the schedule commits, float32 [B]. steps: run so far. masked: bool [B, C].
        """
        total, canvas = self.config.total_steps, self.config.canvas
        ends, shares = zip(*(self.schedule.at(step, total, canvas) for step in steps), strict=True)
        return _before(masked, torch.tensor(ends, device=masked.device)), torch.stack(shares)

    def choose(self, proposed: Proposed, state: State) -> Tensor:
        """The positions that commit, bool [B, C]."""
        run, temperature = proposed.run, self.config.order_temperature
        count = quotas(run.open, run.shares, up=self.schedule.round_up)
        scores = proposed.scores(proposed.score)
        if temperature:
            return _draw_positions(state, scores, count, temperature) | run.last[:, None]
        return best(scores, proposed.allowed, count)


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
        return above(sure, proposed.allowed, self.config.commit) | proposed.run.last[:, None]


Rule = Quota | Probability


def commit_rule(config: DenoiseConfig, schedule: Schedule) -> Rule:
    """The rule of a run; "auto" is the quota."""
    return Quota(config, schedule) if isinstance(config.commit, str) else Probability(config, schedule)


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
    picks = lottery(rows, wanted, temperature, state.generators)
    for row, (index, length) in enumerate(zip(picks, lengths, strict=True)):
        # A share that underflows to 0 can still be drawn, and the prompt's are 0.
        chosen[row, index[index >= length] - length] = True
    return chosen & (scores > -torch.inf)


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


def lottery(
    scores: list[Tensor], quota: list[int], temperature: float, generators: list[torch.Generator]
) -> list[Tensor]:
    """For each row, `quota` indices drawn without replacement from softmax(score / temperature).

    scores: one 1-D tensor per row, -inf where nothing may commit. One random number is drawn per entry, so a
    row covers prompt and canvas to equal the published sampler's.
    """
    return [
        torch.multinomial((score / temperature).softmax(-1), count, generator=generator)
        if count
        else torch.empty(0, dtype=torch.long, device=score.device)
        for score, count, generator in zip(scores, quota, generators, strict=True)
    ]


def flips(masked: Tensor, shares: list[float], generators: list[torch.Generator]) -> Tensor:
    """An independent draw per masked position, with the row's share as its probability, bool [B, C].

    The reverse process of absorbing diffusion (Austin et al., arXiv 2107.03006): Dream's `origin`.
    """
    flipped = torch.zeros_like(masked)
    for row, (share, generator) in enumerate(zip(shares, generators, strict=True)):
        count = int(masked[row].sum())
        flipped[row, masked[row]] = torch.rand(count, generator=generator, device=masked.device) < share
    return flipped


def _ranks(scores: Tensor) -> Tensor:
    """Ranks of the scores in each row, 0 for the highest: int64 [B, C]."""
    order = scores.sort(dim=1, descending=True, stable=True).indices
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)
