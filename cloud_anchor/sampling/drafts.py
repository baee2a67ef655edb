"""Drafts: tokens ahead of a step's commits, which the next pass verifies.

After Parallel Speculative Decoding (Sun et al., arXiv 2605.15609). Level 0 is the canvas with the commits of
a step; each further level adds the next surest tokens of the same pass. The next pass runs the levels of an
answer as rows of one batch. A level holds where the row of the one before predicts all that it adds, and the
step goes on from the deepest that holds. So one pass does what several would, and costs as many rows.

Responsible for what is drafted and what a pass confirms. Not responsible for what a step commits unverified
(see `commits`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.scores import suppress_eos
from cloud_anchor.sampling.state import ForwardPass, State
from cloud_anchor.sampling.stops import likely_length


def levels(
    model: MaskedModel, config: DenoiseConfig, run: ForwardPass, tokens: Tensor, ids: Tensor
) -> Tensor:
    """The level at which each masked position of the canvases `ids` is drafted, int64 [B, C]; 0 for none.

    tokens: int64 [B, C], proposed by the pass. ids: int64 [B, C], with the commits of its step: a level has
    as many of the surest tokens left.
    """
    nothing = torch.zeros(ids.shape, device=ids.device)
    sure = run.spread(run.probability(model, tokens, run.masked), nothing)
    ending = run.spread(run.ending(model), nothing)
    count = (run.masked & (ids != model.mask_id)).sum(1)
    found = torch.zeros_like(ids)
    for level in range(1, config.depth):
        masked, end = ids == model.mask_id, torch.isin(ids, model.ends)
        length = likely_length(masked, end, torch.where(masked, ending, end.float()))
        allowed = suppress_eos(run.open & masked, tokens, ids, model.ends, length)
        chosen = unmasking.best(sure, allowed, count)
        ids = torch.where(chosen, tokens, ids)
        found = found.masked_fill(chosen, level)
    return found


def verify(model: MaskedModel, state: State) -> tuple[State, Tensor]:
    """One pass over every canvas and its drafts: the state with the deepest ones that hold, and its logits
    [N, V] at masked positions. Without drafts, the state as it is. Changes nothing in place.
    """
    assert state.batch is not None
    masked = state.ids == model.mask_id
    level = state.level * masked  # a grammar may have pinned a token where one was drafted
    rows = level.amax(1) + 1
    if int(rows.max()) == 1:
        return state, model.logits(state.batch, state.ids, masked, state.prefix)
    first = rows.cumsum(0) - rows
    answer = torch.arange(len(rows), device=rows.device).repeat_interleave(rows)
    depth = torch.arange(len(answer), device=rows.device) - first[answer]
    level, draft = level[answer], state.draft[answer]  # [R, C] from here on, a row for each level
    ids = torch.where((level > 0) & (level <= depth[:, None]), draft, state.ids[answer])
    open_, next_ = ids == model.mask_id, level == depth[:, None] + 1
    logits = model.logits(state.batch.rows(answer), ids, open_)
    judged = model.without_unusable(logits[next_[open_]]).float()
    holds = torch.ones_like(next_).masked_scatter(next_, judged.argmax(-1) == draft[next_]).all(1)
    ends = ~holds | (depth + 1 == rows[answer])
    kept = first + torch.stack([part.int().argmax() for part in torch.split(ends, rows.tolist())])
    chance = judged.softmax(-1).gather(-1, draft[next_][:, None])[:, 0]
    sure = torch.zeros_like(state.sure).index_add(
        0, answer, torch.zeros(ids.shape, device=ids.device).masked_scatter(next_, chance)
    )
    taken = masked & ~open_[kept]
    step = torch.tensor(state.steps, dtype=torch.int32, device=ids.device) + 1
    seen = replace(
        state,
        ids=ids[kept],
        when=torch.where(taken, step[:, None], state.when),
        sure=torch.where(taken, sure, state.sure),
        draft_rows=[run + more - 1 for run, more in zip(state.draft_rows, rows.tolist(), strict=True)],
    )
    here = torch.zeros_like(open_).index_fill(0, kept, True)
    return seen, logits[(open_ & here)[open_]]
