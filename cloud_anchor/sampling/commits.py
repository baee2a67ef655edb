"""Commit rules: which of a pass's proposals become permanent, by the name of the rule.

Responsible for one function per rule, from a proposal to tokens and positions. Not responsible for the
forward passes (see `step`) or for arithmetic on positions (see `unmasking`).

Every rule commits all that is left where the schedule says so: in the last planned step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.config import CONFIDENCE, DenoiseConfig
from cloud_anchor.sampling.schedules import LINEAR
from cloud_anchor.sampling.scores import SCORES, Proposal
from cloud_anchor.sampling.state import ForwardPass, State


@dataclass(frozen=True)
class Proposed:
    """A token for every masked position of a batch, before any commits.

    proposal: the same as [N] for the masked positions. tokens: int64 [B, C], the canvas elsewhere.
    allowed: bool [B, C], positions that may commit.
    """

    run: ForwardPass
    state: State
    config: DenoiseConfig
    proposal: Proposal
    tokens: Tensor
    allowed: Tensor

    def spread(self, values: Tensor) -> Tensor:
        """Values [N] as [B, C], -inf where nothing is masked."""
        return self.run.spread(values, torch.full(self.allowed.shape, -torch.inf, device=values.device))

    def scores(self, order: str) -> Tensor:
        """The scores [B, C] of an order, -inf where nothing may commit."""
        return self.spread(SCORES[order](self.proposal)).masked_fill(~self.allowed, -torch.inf)


Rule = Callable[[Proposed], Tensor]
"""From a proposal to the positions that commit, bool [B, C]."""


def quota(proposed: Proposed) -> Tensor:
    """As many of the best-scored positions as the schedule says, or a draw of as many."""
    run, config = proposed.run, proposed.config
    count = unmasking.quotas(run.open, run.shares, up=config.schedule == LINEAR)
    scores = proposed.scores(config.order)
    if config.order_temperature:
        return _draw_positions(proposed.state, scores, count, config.order_temperature) | run.last[:, None]
    return unmasking.best(scores, proposed.allowed, count)


def threshold(proposed: Proposed) -> Tensor:
    """Every position whose proposed token has at least this probability (Fast-dLLM, 2505.22618)."""
    sure = proposed.spread(SCORES[CONFIDENCE](proposed.proposal)).exp()
    return unmasking.above(sure, proposed.allowed, proposed.config.commit) | proposed.run.last[:, None]


RULES: Mapping[str, Rule] = {
    "quota": quota,
    "threshold": threshold,
}
"""By `DenoiseConfig.rule`."""


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
