"""One denoising step: a forward pass, a token for each masked position, and the positions that commit.

Responsible for the combination of model, filters, order, schedule and commit rule. Not responsible for the
number of steps (see `sampler`, `continuous_batch`).

Rows of a batch are independent: each has its own generator, quota and step count, so an answer does not
depend on the rest of its batch. For one row, a seed and one of Dream's four orders, the commits of every step
equal those of the published sampler; ties go to the lower position, as its topk breaks them on CUDA.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from cloud_anchor.model.dream import DreamModel, Prefix
from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.config import CONFIDENCE, ORIGIN, DenoiseConfig
from cloud_anchor.sampling.filters import draw, filtered_probabilities
from cloud_anchor.sampling.schedules import SCHEDULES
from cloud_anchor.sampling.scores import SCORES, Proposal, suppress_eos
from cloud_anchor.sampling.state import ForwardPass, State


@torch.no_grad()
def advance(model: DreamModel, state: State, config: DenoiseConfig) -> None:
    """Runs one step of every row in one forward pass; changes `state` in place."""
    state.last = None  # its logits are not needed any more, and are large
    if state.batch is None:
        state.batch = model.batch(state.prompts, config.canvas)
        state.prefix = Prefix(config.prefix_every) if config.prefix_every else None
    masked = state.ids == model.mask_id
    shares = SCHEDULES[config.schedule](config.total_steps)[torch.tensor(state.steps)]
    logits = model.logits(state.batch, state.ids, masked, state.prefix)
    run = ForwardPass(logits, masked, masked.sum(1).tolist(), shares)
    propose = _propose_at_random if config.order == ORIGIN else _propose_by_score
    tokens, chosen = propose(model, state, config, run)
    # A proposed mask token, which Dream's orders do not rule out, commits nothing.
    commit = chosen & masked & (tokens != model.mask_id)
    state.steps = [step + 1 for step in state.steps]
    steps = torch.tensor(state.steps, dtype=torch.int32, device=masked.device)
    state.ids = torch.where(commit, tokens, state.ids)
    state.when = torch.where(commit, steps[:, None], state.when)
    state.last = run


Choice = tuple[Tensor, Tensor]
"""Proposed tokens int64 [B, C], and the positions that commit, bool [B, C]."""


def _propose_at_random(model: DreamModel, state: State, config: DenoiseConfig, run: ForwardPass) -> Choice:
    """Dream's `origin`: positions first, at random, and tokens only for these."""
    chosen = unmasking.flips(run.masked, run.shares.tolist(), state.generators)
    logits = run.logits[chosen[run.masked]]
    tokens, _ = _sample(logits, config, chosen.sum(1).tolist(), state)
    return state.ids.masked_scatter(chosen, tokens), chosen


def _propose_by_score(model: DreamModel, state: State, config: DenoiseConfig, run: ForwardPass) -> Choice:
    """A token for every masked position first, then the positions that commit, by score."""
    suppresses_eos = config.order == CONFIDENCE
    logits = model.without_unusable(run.logits) if suppresses_eos else run.logits
    ids, probabilities = _sample(logits, config, run.counts, state)
    tokens = run.spread(ids, state.ids)
    allowed = run.masked
    if suppresses_eos:
        allowed = suppress_eos(run.masked, tokens, state.ids, model.ends) | (run.masked & run.last[:, None])
    nothing = torch.full(allowed.shape, -torch.inf, device=allowed.device)
    proposal = Proposal(logits, probabilities, ids)
    if config.commit_threshold is not None:
        confidence = run.spread(SCORES[CONFIDENCE](proposal), nothing).exp()
        return tokens, unmasking.above(confidence, allowed, config.commit_threshold) | run.last[:, None]
    scores = run.spread(SCORES[config.order](proposal), nothing).masked_fill(~allowed, -torch.inf)
    quota = unmasking.quotas(run.masked, run.shares)
    if config.order_temperature:
        return tokens, _draw_positions(state, scores, quota, config.order_temperature) | run.last[:, None]
    return tokens, unmasking.best(scores, allowed, quota)


def _draw_positions(state: State, scores: Tensor, quota: Tensor, temperature: float) -> Tensor:
    """Positions drawn in proportion to softmax(score / temperature), over prompt and canvas as published."""
    lengths = [len(prompt) for prompt in state.prompts]
    rows = [pad(score, (length, 0), value=-torch.inf) for score, length in zip(scores, lengths, strict=True)]
    free: list[int] = (scores > -torch.inf).sum(1).tolist()
    wanted = [min(count, most) for count, most in zip(quota.tolist(), free, strict=True)]
    chosen = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    picks = unmasking.lottery(rows, wanted, temperature, state.generators)
    for row, (index, length) in enumerate(zip(picks, lengths, strict=True)):
        # A share that underflows to 0 can be drawn all the same, and the prompt's are 0.
        chosen[row, index[index >= length] - length] = True
    return chosen & (scores > -torch.inf)


def _sample(logits: Tensor, config: DenoiseConfig, counts: list[int], state: State) -> tuple[Tensor, Tensor]:
    """A token id [N] per row of logits [N, V], and the filtered probabilities [N, V] it is taken from."""
    probabilities = filtered_probabilities(logits, config.temperature, config.top_p, config.top_k)
    if config.temperature > 0:
        return draw(probabilities, counts, state.generators), probabilities
    return probabilities.argmax(-1), probabilities
