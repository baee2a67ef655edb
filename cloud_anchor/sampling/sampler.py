"""The denoising loop: a canvas of mask tokens becomes an answer, a few permanent commits a step.

Knows how the parts go together: model, filters, order, schedule, commit rule, stop rule. Does not know
what is done with an unfinished canvas (see `select` and `edge_aware`).

Rows of a batch do not influence one another: each has its own generator, quota and step count, so an
answer is the same alone and in company. For one row, a seed and one of Dream's four algorithms, the
commits of every step are those of the published sampler; only ties go to the lower position, as on CUDA,
and not in a CPU's order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from cloud_anchor.errors import RequestError
from cloud_anchor.model.dream import DreamModel, Prefix
from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.config import ALGORITHMS, ORIGIN, DenoiseConfig, steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.filters import draw, filtered_probabilities
from cloud_anchor.sampling.schedules import SCHEDULES
from cloud_anchor.sampling.scores import SCORES, Proposal, suppress_eos
from cloud_anchor.sampling.state import Pass, State
from cloud_anchor.sampling.stops import STOPS

__all__ = [
    "ALGORITHMS",
    "DenoiseConfig",
    "Running",
    "Seen",
    "State",
    "advance",
    "denoise",
    "denoise_steps",
    "denoise_stream",
    "steps_for",
]

Prompt = Sequence[int]
Name = TypeVar("Name", bound=Hashable)


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
    running: Running[int] = Running(model, config)
    while True:
        for index, prompt in islice(waiting, batch - len(running)):
            running.join(index, prompt)
        if not len(running):
            return
        for index, answer, _ in running.step():
            yield index, answer


class Seen(NamedTuple, Generic[Name]):
    """An answer as it is after a step; `done` if it has left the batch."""

    name: Name
    run: Denoised
    done: bool


@dataclass
class _Row(Generic[Name]):
    """A place in the batch: whose it is, and after which steps it is to be seen, ascending."""

    name: Name
    marks: tuple[int, ...]


class Running(Generic[Name]):
    """Answers denoised together, of which any may join or leave between two steps.

    They share a configuration, but for the number of steps that each runs. Not for several threads at once.
    """

    def __init__(self, model: DreamModel, config: DenoiseConfig) -> None:
        self.model = model
        self.config = config
        self._rows: list[_Row[Name]] = []
        self._state: State | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> list[Name]:
        return [row.name for row in self._rows]

    def join(self, name: Name, prompt: Prompt, marks: Sequence[int] = ()) -> None:
        """Takes an answer into the next step.

        marks: steps after which it is seen, ascending; it leaves after the last. Default: config.run_steps.
        """
        started = State.start(self.model, [prompt], self.config)
        self._state = started if self._state is None else self._state.join(started)
        self._rows.append(_Row(name, tuple(marks) or (self.config.run_steps,)))

    def leave(self, names: Iterable[Name]) -> None:
        """Drops answers that nobody waits for any more."""
        gone = set(names)
        self._keep([index for index, row in enumerate(self._rows) if row.name not in gone])

    def split(self) -> Running[Name]:
        """Hands the later half of the answers to another batch, where all together are too many."""
        other: Running[Name] = Running(self.model, self.config)
        half = (len(self._rows) + 1) // 2
        if self._state is not None and half < len(self._rows):
            other._rows = self._rows[half:]
            other._state = self._state.take(range(half, len(self._rows)))
            self._keep(list(range(half)))
        return other

    def step(self) -> list[Seen[Name]]:
        """One step of every answer; gives those that are at a mark, or done for another reason.

        Where the model fails, the answers stay as they were before the step.
        """
        state = self._state
        if state is None:
            return []
        advance(self.model, state, self.config)
        done = _finished(self.model, state, self.config, [row.marks[-1] for row in self._rows])
        marked = {
            index: "steps" for index, row in enumerate(self._rows) if state.steps[index] in row.marks
        } | dict(done)
        if not marked:
            return []
        answers = state.results(self.model, self.config, marked)
        seen = [
            Seen(self._rows[index].name, answer, index in done)
            for index, answer in zip(marked, answers, strict=True)
        ]
        if done:
            self._keep([index for index in range(len(self._rows)) if index not in done])
        return seen

    def _keep(self, rows: Sequence[int]) -> None:
        if self._state is not None and len(rows) < len(self._rows):
            self._state = self._state.take(rows) if rows else None
            self._rows = [self._rows[index] for index in rows]


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


def _finished(
    model: DreamModel, state: State, config: DenoiseConfig, limits: Sequence[int]
) -> Mapping[int, str]:
    """Rows that are done, each with the reason; `limits` are the steps that each is to run."""
    pairs = zip(state.steps, limits, strict=True)
    done = {row: "steps" for row, (step, limit) in enumerate(pairs) if step >= limit}
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
        state.prefix = Prefix(config.prefix_every) if config.prefix_every else None
    masked = state.ids == model.mask_id
    shares = SCHEDULES[config.schedule](config.total_steps)[torch.tensor(state.steps)]
    logits = model.logits(state.batch, state.ids, masked, state.prefix)
    run = Pass(logits, masked, masked.sum(1).tolist(), shares)
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
    chosen = unmasking.flips(run.masked, run.shares.tolist(), state.generators)
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
        allowed = suppress_eos(run.masked, tokens, state.ids, model.ends) | (run.masked & run.last[:, None])
    nothing = torch.full(allowed.shape, -torch.inf, device=allowed.device)
    proposal = Proposal(logits, probabilities, ids)
    if config.threshold is not None:
        sure = run.spread(SCORES["confidence"](proposal), nothing).exp()
        return tokens, unmasking.above(sure, allowed, config.threshold) | run.last[:, None]
    scores = run.spread(SCORES[config.alg](proposal), nothing).masked_fill(~allowed, -torch.inf)
    quota = unmasking.quotas(run.masked, run.shares)
    if config.alg_temp:
        return tokens, _drawn(state, scores, quota, config.alg_temp) | run.last[:, None]
    return tokens, unmasking.best(scores, allowed, quota)


def _drawn(state: State, scores: Tensor, quota: Tensor, alg_temp: float) -> Tensor:
    """Positions drawn in proportion to their score, over prompt and canvas as published."""
    lengths = [len(prompt) for prompt in state.prompts]
    rows = [pad(score, (length, 0), value=-torch.inf) for score, length in zip(scores, lengths, strict=True)]
    free: list[int] = (scores > -torch.inf).sum(1).tolist()
    wanted = [min(count, most) for count, most in zip(quota.tolist(), free, strict=True)]
    chosen = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    picks = unmasking.lottery(rows, wanted, alg_temp, state.generators)
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
