"""The denoising loop: a canvas of mask tokens becomes an answer, a few permanent commits a step.

Knows how the parts go together: model, filters, order, schedule, commit rule, stop rule. Does not know
what is done with an unfinished canvas (see `select` and `edge_aware`).

Rows of a batch do not influence one another: each has its own generator, quota and step count, so an
answer is the same alone and in company. For one row, a seed and one of Dream's four algorithms, the
commits of every step are those of the published sampler; only ties go to the lower position, as on CUDA,
and not in a CPU's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor
from torch.nn.functional import pad

from cloud_anchor import commits
from cloud_anchor.denoised import Denoised
from cloud_anchor.dream import DreamModel
from cloud_anchor.errors import RequestError
from cloud_anchor.filters import draw, filtered_probabilities
from cloud_anchor.orders import ORDERS, Proposal, hold_back_ends
from cloud_anchor.plan import ALGORITHMS, ORIGIN, DenoiseConfig, steps_for
from cloud_anchor.schedules import SCHEDULES
from cloud_anchor.state import Pass, State
from cloud_anchor.stops import STOPS

__all__ = [
    "ALGORITHMS",
    "DenoiseConfig",
    "State",
    "advance",
    "denoise",
    "denoise_steps",
    "denoise_stream",
    "steps_for",
]

Prompt = Sequence[int]


def denoise(
    model: DreamModel, prompts: Sequence[Prompt], config: DenoiseConfig, batch: int | None = None
) -> list[Denoised]:
    """Every prompt's answer (prompts are token ids), in their order; `batch` at a time, by default all at
    once.
    """
    if not prompts:
        raise RequestError("expected at least one prompt, found none")
    found = dict(denoise_stream(model, prompts, config, batch or len(prompts)))
    return [found[index] for index in range(len(prompts))]


def denoise_stream(
    model: DreamModel, prompts: Iterable[Prompt], config: DenoiseConfig, batch: int
) -> Iterator[tuple[int, Denoised]]:
    """(index of the prompt, its answer), each as soon as it is done.

    An answer that is done leaves the batch and the next prompt takes its place, so with a stop rule no
    pass is spent on finished answers. Prompts are taken from the iterable as places become free.
    """
    if batch < 1:
        raise RequestError(f"batch: expected at least 1, found {batch}")
    waiting = enumerate(prompts)
    names: list[int] = []
    state: State | None = None
    while True:
        fresh = list(islice(waiting, batch - len(names)))
        if fresh:
            started = State.start(model, [prompt for _, prompt in fresh], config)
            state = started if state is None else state.join(started)
            names += [index for index, _ in fresh]
        if state is None:
            return
        advance(model, state, config)
        done = _finished(model, state, config)
        if done:
            answers = state.results(model, config, done)
            yield from zip([names[row] for row in done], answers, strict=True)
            kept = [row for row in range(len(names)) if row not in done]
            names = [names[row] for row in kept]
            state = state.take(kept) if kept else None


def denoise_steps(
    model: DreamModel, prompts: Sequence[Prompt], config: DenoiseConfig, state: State | None = None
) -> Iterator[State]:
    """Yields the state after each step, up to config.steps, of new answers or of those in `state`.

    For looking on and for going on from where another run has stopped: the same object each time, advanced in
    place. Stop rules do not apply.
    """
    if not prompts and state is None:
        raise RequestError("expected at least one prompt, found none")
    state = state or State.start(model, prompts, config)
    while min(state.steps) < config.run_steps:
        advance(model, state, config)
        yield state


def _finished(model: DreamModel, state: State, config: DenoiseConfig) -> Mapping[int, str]:
    """Rows that are done, each with the reason."""
    done = {row: "steps" for row, step in enumerate(state.steps) if step >= config.run_steps}
    if config.stop is not None:
        rule = STOPS[config.stop](state.look(model, config)).tolist()
        done = {row: config.stop for row, stop in enumerate(rule) if stop} | done
    if config.threshold is not None:
        open_ = (state.ids == model.mask_id).any(1).tolist()
        done = {row: "finished" for row, left in enumerate(open_) if not left} | done
    return dict(sorted(done.items()))


@torch.no_grad()
def advance(model: DreamModel, state: State, config: DenoiseConfig) -> None:
    """One step of every row, in one forward pass."""
    state.last = None  # its logits are not needed any more, and are large
    if state.batch is None:
        state.batch = model.batch(state.prompts, config.canvas)
    masked = state.ids == model.mask_id
    shares = SCHEDULES[config.schedule](config.total_steps)[torch.tensor(state.steps)]
    run = Pass(model.logits(state.batch, state.ids, masked), masked, masked.sum(1).tolist(), shares)
    tokens, chosen = (_flip if config.alg == ORIGIN else _rank)(model, state, config, run)
    # A proposed mask token, which Dream's algorithms do not rule out, commits nothing.
    commit = chosen & masked & (tokens != model.mask_id)
    state.steps = [step + 1 for step in state.steps]
    steps = torch.tensor(state.steps, dtype=torch.int32, device=masked.device)
    state.ids = torch.where(commit, tokens, state.ids)
    state.when = torch.where(commit, steps[:, None], state.when)
    state.last = run


Choice = tuple[Tensor, Tensor]
"""Proposed tokens int64 [B, C], and which positions commit, bool [B, C]."""


def _flip(model: DreamModel, state: State, config: DenoiseConfig, run: Pass) -> Choice:
    """Dream's `origin`: positions first, at random, and tokens only for these."""
    chosen = commits.flips(run.masked, run.shares.tolist(), state.generators)
    logits = run.logits[chosen[run.masked]]
    return state.ids.masked_scatter(chosen, _tokens(logits, config, chosen.sum(1).tolist(), state)[0]), chosen


def _rank(model: DreamModel, state: State, config: DenoiseConfig, run: Pass) -> Choice:
    """A token for every masked position first, then the positions that commit, by order."""
    held = config.alg == "confidence"
    logits = model.without_unusable(run.logits) if held else run.logits
    ids, probabilities = _tokens(logits, config, run.counts, state)
    tokens = run.spread(ids, state.ids)
    allowed = run.masked
    if held:
        allowed = hold_back_ends(run.masked, tokens, state.ids, model.ends) | (run.masked & run.last[:, None])
    nothing = torch.full(allowed.shape, -torch.inf, device=allowed.device)
    proposal = Proposal(logits, probabilities, ids)
    if config.threshold is not None:
        sure = run.spread(ORDERS["confidence"](proposal), nothing).exp()
        return tokens, commits.above(sure, allowed, config.threshold) | run.last[:, None]
    scores = run.spread(ORDERS[config.alg](proposal), nothing).masked_fill(~allowed, -torch.inf)
    quota = commits.quotas(run.masked, run.shares)
    if config.alg_temp:
        return tokens, _drawn(state, scores, quota, config.alg_temp) | run.last[:, None]
    return tokens, commits.best(scores, allowed, quota)


def _drawn(state: State, scores: Tensor, quota: Tensor, alg_temp: float) -> Tensor:
    """Positions drawn in proportion to their score, over prompt and canvas as published."""
    lengths = [len(prompt) for prompt in state.prompts]
    rows = [pad(score, (length, 0), value=-torch.inf) for score, length in zip(scores, lengths, strict=True)]
    free: list[int] = (scores > -torch.inf).sum(1).tolist()
    wanted = [min(count, most) for count, most in zip(quota.tolist(), free, strict=True)]
    chosen = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    picks = commits.lottery(rows, wanted, alg_temp, state.generators)
    for row, (index, length) in enumerate(zip(picks, lengths, strict=True)):
        # A share that underflows to 0 can be drawn all the same, and the prompt's are 0.
        chosen[row, index[index >= length] - length] = True
    return chosen & (scores > -torch.inf)


def _tokens(logits: Tensor, config: DenoiseConfig, counts: list[int], state: State) -> tuple[Tensor, Tensor]:
    """A token id [N] for each row of logits [N, V], and the filtered probabilities [N, V] it comes from."""
    probabilities = filtered_probabilities(logits, config.temperature, config.top_p, config.top_k)
    if config.temperature > 0:
        return draw(probabilities, counts, state.generators), probabilities
    return probabilities.argmax(-1), probabilities
