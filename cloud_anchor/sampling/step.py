"""One denoising step: a forward pass, a token for each masked position, and the positions that commit.

Responsible for the combination of model, filters, order and commit rule. Not responsible for the number of
steps (see `sampler`, `continuous_batch`).

Each row of a batch has its own generator, quota and step count. In float32 an answer does not depend on the
rest of its batch; in bfloat16 products over another number of rows round otherwise, and some answers differ.
For one row, a seed and one of Dream's orders, the commits of every step equal those of the published
sampler; ties go to the lower position, as its topk breaks them on CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cloud_anchor.sampling.commits import Proposed, Rule, commit_rule
from cloud_anchor.sampling.config import CONFIDENCE
from cloud_anchor.sampling.filters import draw, filtered_probabilities
from cloud_anchor.sampling.scores import ORDERS, Proposal, suppress_eos
from cloud_anchor.sampling.state import ForwardPass, State
from cloud_anchor.sampling.stops import STOPS


@torch.no_grad()
def advance(state: State) -> None:
    """Runs one step of every row in one forward pass; changes `state` in place."""
    model, config = state.model, state.config
    state.last = None  # its logits are not needed any more, and are large
    state.batch = state.batch or model.batch(state.prompts, config.canvas)
    masked = state.ids == model.mask_id
    rule = commit_rule(config, model.schedule)
    open_, shares = rule.open(state.steps, masked)
    run = ForwardPass(model.logits(state.batch, state.ids, masked), masked, open_, shares)
    tokens, chosen = _propose(state, run, rule)
    # A proposed mask token, which Dream's orders do not rule out, commits nothing.
    commit = chosen & open_ & (tokens != model.mask_id)
    state.sure = state.sure.masked_scatter(commit, run.probability(model, tokens, commit))
    state.ids = torch.where(commit, tokens, state.ids)
    state.steps = [step + 1 for step in state.steps]
    steps = torch.tensor(state.steps, dtype=torch.int32, device=masked.device)
    state.when = torch.where(commit, steps[:, None], state.when)
    state.last = run


def _propose(state: State, run: ForwardPass, rule: Rule) -> tuple[Tensor, Tensor]:
    """Proposed tokens int64 [B, C], and the positions that commit, bool [B, C]."""
    model, config = state.model, state.config
    # By confidence only ordinary tokens and end markers are proposed, and the latter held back.
    holds_ends = config.order == CONFIDENCE
    logits = model.without_unusable(run.logits) if holds_ends else run.logits
    probabilities = filtered_probabilities(logits, config.temperature, config.top_p)
    ids = probabilities.argmax(-1)
    if config.temperature > 0:
        ids = draw(probabilities, run.masked.sum(1).tolist(), state.generators)
    tokens, allowed = run.spread(ids, state.ids), run.open
    if holds_ends:
        lengths = run.lengths(model, state.ids)
        allowed = suppress_eos(run.open, tokens, state.ids, model.ends, lengths)
        allowed = allowed | (run.open & run.last[:, None])
    proposed = Proposed(run, Proposal(logits, probabilities, ids), ORDERS[config.order], allowed)
    return tokens, rule.choose(proposed)


class MaskedAnswers(State):
    """A state as `protocol.Answers`."""

    def advance(self) -> None:
        advance(self)

    def done(self, limits: Sequence[int]) -> Mapping[int, str]:
        stop = self.config.stop
        done = {
            row: "steps"
            for row, pair in enumerate(zip(self.steps, limits, strict=True))
            if pair[0] >= pair[1]
        }
        if stop is not None:
            done = {row: stop for row, stops in enumerate(STOPS[stop](self.view()).tolist()) if stops} | done
        open_ = (self.ids == self.model.mask_id).any(1).tolist()
        done = {row: "finished" for row, left in enumerate(open_) if not left} | done
        return dict(sorted(done.items()))
