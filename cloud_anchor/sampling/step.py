"""One denoising step: a forward pass, a token for each masked position, and the positions that commit.

Responsible for the combination of model, filters, order, schedule and commit rule. Not responsible for the
number of steps (see `sampler`, `continuous_batch`).

Each row of a batch has its own generator, quota and step count. In float32 an answer does not depend on the
rest of its batch; in bfloat16 products over another number of rows round otherwise, and some answers differ.
For one row, a seed and one of Dream's four orders, the commits of every step equal those of the published
sampler; ties go to the lower position, as its topk breaks them on CUDA.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cloud_anchor.sampling import blocks, unmasking
from cloud_anchor.sampling.commits import RULES, Proposed
from cloud_anchor.sampling.config import CONFIDENCE, ORIGIN, DenoiseConfig
from cloud_anchor.sampling.filters import draw, filtered_probabilities
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.scores import Proposal, suppress_eos
from cloud_anchor.sampling.state import ForwardPass, State


@torch.no_grad()
def advance(model: MaskedModel, state: State, config: DenoiseConfig) -> None:
    """Runs one step of every row in one forward pass; changes `state` in place."""
    state.last = None  # its logits are not needed any more, and are large
    if state.batch is None:
        state.batch = model.batch(state.prompts, config.canvas)
    masked = state.ids == model.mask_id
    logits = model.logits(state.batch, state.ids, masked)
    count = blocks.opened(config, state.steps, state.blocks, masked)
    open_ = blocks.open_positions(config, state.steps, count, masked)
    run = ForwardPass(logits, masked, open_, masked.sum(1).tolist(), blocks.shares(config, state.steps))
    propose = _propose_at_random if config.order == ORIGIN else _propose_by_score
    tokens, chosen = propose(model, state, config, run)
    # A proposed mask token, which Dream's orders do not rule out, commits nothing.
    commit = chosen & open_ & (tokens != model.mask_id)
    sure = state.sure.masked_scatter(commit, run.probability(model, tokens, commit))
    ids = torch.where(commit, tokens, state.ids)
    state.steps, state.blocks = [step + 1 for step in state.steps], count
    steps = torch.tensor(state.steps, dtype=torch.int32, device=masked.device)
    state.ids, state.when = ids, torch.where(commit, steps[:, None], state.when)
    state.sure = sure
    state.last = run


Choice = tuple[Tensor, Tensor]
"""Proposed tokens int64 [B, C], and the positions that commit, bool [B, C]."""


def _propose_at_random(model: MaskedModel, state: State, config: DenoiseConfig, run: ForwardPass) -> Choice:
    """Dream's `origin`: positions first, at random, and tokens only for these."""
    chosen = unmasking.flips(run.open, run.shares.tolist(), state.generators)
    logits = run.logits[chosen[run.masked]]
    tokens, _ = _sample(logits, config, chosen.sum(1).tolist(), state)
    return state.ids.masked_scatter(chosen, tokens), chosen


def _propose_by_score(model: MaskedModel, state: State, config: DenoiseConfig, run: ForwardPass) -> Choice:
    """A token for every masked position first, then the positions that commit, by score."""
    suppresses_eos = config.order == CONFIDENCE
    logits = model.without_unusable(run.logits) if suppresses_eos else run.logits
    ids, probabilities = _sample(logits, config, run.counts, state)
    tokens = run.spread(ids, state.ids)
    allowed = run.open
    if suppresses_eos:
        lengths = run.lengths(model, state.ids)
        allowed = suppress_eos(run.open, tokens, state.ids, model.ends, lengths)
        allowed = allowed | (run.open & run.last[:, None])
    proposed = Proposed(run, state, config, Proposal(logits, probabilities, ids), tokens, allowed)
    return tokens, RULES[config.rule](proposed)


def _sample(logits: Tensor, config: DenoiseConfig, counts: list[int], state: State) -> tuple[Tensor, Tensor]:
    """A token id [N] per row of logits [N, V], and the filtered probabilities [N, V] it is taken from."""
    probabilities = filtered_probabilities(logits, config.temperature, config.top_p, config.top_k)
    if config.temperature > 0:
        return draw(probabilities, counts, state.generators), probabilities
    return probabilities.argmax(-1), probabilities
