"""The denoising loop: a canvas of mask tokens becomes an answer, a few permanent commits a step.

Knows how the parts go together: model, filters, order, schedule, commit rule. Does not know what is done with
an unfinished canvas (see `select` and `edge_aware`).

Rows of a batch do not influence one another: each has its own generator, quota and step count, so an
answer is the same alone and in company. For one row, a seed and one of Dream's four algorithms, the
commits of every step are those of the published sampler; only ties go to the lower position, as on CUDA,
and not in a CPU's order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from cloud_anchor import commits
from cloud_anchor.denoised import Denoised
from cloud_anchor.dream import Batch, DreamModel
from cloud_anchor.errors import RequestError
from cloud_anchor.filters import draw, filtered_probabilities
from cloud_anchor.orders import ORDERS, Proposal, hold_back_ends
from cloud_anchor.schedules import SCHEDULES
from payload.anchors import MAX_CANVAS

ORIGIN = "origin"
ALGORITHMS = (ORIGIN, *ORDERS)
MAX_STEPS = 65_536


@dataclass(frozen=True)
class DenoiseConfig:
    """How an answer is denoised. The paper: entropy, temperature 0.2, top_p 0.95, 128 steps, canvas 512.

    canvas:      response positions, answer and the end markers after it.
    total_steps: steps planned; with `schedule` it says how many tokens commit at each.
    steps:       steps run before stopping; None for all.
    alg:         order of commits: origin (at random), maskgit_plus, topk_margin, entropy, confidence.
    temperature: 0 takes the likeliest token. top_p, top_k: filters, None for none.
    alg_temp:    None or 0 takes the surest positions, else they are drawn from softmax(score / alg_temp).
    threshold:   None commits the schedule's quota; else every position whose unfiltered probability is at
                 least this.
    seed:        each answer draws from a generator of its own that starts here.
    """

    canvas: int = 256
    total_steps: int = 128
    steps: int | None = None
    alg: str = "confidence"
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    alg_temp: float | None = None
    schedule: str = "dream"
    threshold: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _check("canvas", 1 <= self.canvas <= MAX_CANVAS, f"1 to {MAX_CANVAS} positions", self.canvas)
        _check("total steps", 1 <= self.total_steps <= MAX_STEPS, f"1 to {MAX_STEPS}", self.total_steps)
        _check("steps", 1 <= self.run_steps <= self.total_steps, f"1 to {self.total_steps}", self.steps)
        _check("algorithm", self.alg in ALGORITHMS, " or ".join(ALGORITHMS), self.alg)
        _check("schedule", self.schedule in SCHEDULES, " or ".join(SCHEDULES), self.schedule)
        _check("temperature", 0 <= self.temperature <= 100, "0 to 100", self.temperature)
        _check("top-p", self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1", self.top_p)
        _check("top-k", self.top_k is None or self.top_k >= 1, "at least 1", self.top_k)
        _check("alg-temp", self.alg_temp is None or 0 <= self.alg_temp <= 100, "0 to 100", self.alg_temp)
        _check(
            "threshold",
            self.threshold is None or 0 < self.threshold <= 1,
            "above 0, at most 1",
            self.threshold,
        )
        _check(
            "threshold", self.threshold is None or self.alg != ORIGIN, "an algorithm with an order", self.alg
        )

    @property
    def run_steps(self) -> int:
        return self.total_steps if self.steps is None else self.steps


def _check(name: str, holds: bool, expected: str, found: object) -> None:
    if not holds:
        raise RequestError(f"{name}: expected {expected}, found {found!r}")


def steps_for(fraction: float, total_steps: int) -> int:
    """Whole steps in a fraction of the plan, at least one: 0.1 of 128 are 12, as in the published runs."""
    _check("fraction", 0 < fraction <= 1, "above 0, at most 1", fraction)
    return max(1, int(fraction * total_steps + 1e-9))


@dataclass(frozen=True)
class Predictions:
    """What the last pass said about every position, [B, C]; see the fields of Denoised."""

    ids: Tensor
    confidence: Tensor
    ending: Tensor


@dataclass
class State:
    """Answers being denoised, one a row. Advanced in place; `copy` before going two ways from one place.

    ids: int64 [B, C]. when: int32 [B, C], the step that committed each token, 0 where masked.
    steps: steps run, by row. Rows of one state may be at different steps.
    """

    prompts: list[tuple[int, ...]]
    ids: Tensor
    when: Tensor
    steps: list[int]
    generators: list[torch.Generator]
    predictions: Predictions | None = None
    batch: Batch | None = None

    @classmethod
    def start(cls, model: DreamModel, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> State:
        """Empty canvases behind the prompts."""
        shape = (len(prompts), config.canvas)
        return cls(
            prompts=[tuple(prompt) for prompt in prompts],
            ids=torch.full(shape, model.mask_id, dtype=torch.long, device=model.device),
            when=torch.zeros(shape, dtype=torch.int32, device=model.device),
            steps=[0] * len(prompts),
            generators=[torch.Generator(model.device).manual_seed(config.seed) for _ in prompts],
        )

    def copy(self) -> State:
        """An independent state that goes on exactly as this one would."""
        return dataclasses.replace(
            self,
            steps=list(self.steps),
            generators=[generator.clone_state() for generator in self.generators],
        )

    def take(self, rows: Sequence[int]) -> State:
        """The state of some of the rows, without predictions; shares their generators."""
        index = torch.tensor(list(rows), dtype=torch.long, device=self.ids.device)
        return State(
            prompts=[self.prompts[row] for row in rows],
            ids=self.ids[index],
            when=self.when[index],
            steps=[self.steps[row] for row in rows],
            generators=[self.generators[row] for row in rows],
        )

    def join(self, other: State) -> State:
        """Both states' rows, without predictions; the canvases must be equally long."""
        return State(
            prompts=self.prompts + other.prompts,
            ids=torch.cat([self.ids, other.ids]),
            when=torch.cat([self.when, other.when]),
            steps=self.steps + other.steps,
            generators=self.generators + other.generators,
        )

    def results(self, model: DreamModel, config: DenoiseConfig) -> list[Denoised]:
        """Every row as plain values; the last step must have been one that looked."""
        if self.predictions is None:
            raise RequestError("results: expected a state whose last step was run with look=True")
        looks = self.predictions
        columns = (self.ids, self.when, looks.ids, looks.confidence, looks.ending)
        ids, when, predicted, confidence, ending = (column.tolist() for column in columns)
        return [
            Denoised(
                prompt_ids=self.prompts[row],
                ids=ids[row],
                when=when[row],
                predicted=predicted[row],
                confidence=confidence[row],
                ending=ending[row],
                steps=self.steps[row],
                total_steps=config.total_steps,
                mask_id=model.mask_id,
                eos_ids=model.eos_ids,
            )
            for row in range(len(self.prompts))
        ]


def denoise(
    model: DreamModel, prompts: Sequence[Sequence[int]], config: DenoiseConfig, state: State | None = None
) -> list[Denoised]:
    """Runs config.steps steps for every prompt (token ids), or on from `state`, in one batch."""
    *_, last = denoise_steps(model, prompts, config, state)
    return last.results(model, config)


def denoise_steps(
    model: DreamModel, prompts: Sequence[Sequence[int]], config: DenoiseConfig, state: State | None = None
) -> Iterator[State]:
    """Yields the state after each step up to config.steps. The same object each time; every one has
    predictions.
    """
    if not prompts and state is None:
        raise RequestError("expected at least one prompt, found none")
    state = state or State.start(model, prompts, config)
    if min(state.steps) >= config.run_steps:
        raise RequestError(
            f"expected a state before step {config.run_steps}, found {min(state.steps)} steps run"
        )
    while min(state.steps) < config.run_steps:
        advance(model, state, config)
        yield state
        if not bool((state.ids == model.mask_id).any()):
            return


@dataclass(frozen=True)
class Pass:
    """One forward pass: logits [N, V] of the masked positions, `masked` bool [B, C], N = sum of `counts`
    by row.

    shares: float32 [B], how much of what is masked the schedule commits; last: bool [B], it takes all that
            is left.
    """

    logits: Tensor
    masked: Tensor
    counts: list[int]
    shares: Tensor

    @property
    def last(self) -> Tensor:
        return (self.shares >= 1).to(self.masked.device)

    def spread(self, values: Tensor, base: Tensor) -> Tensor:
        """Values [N] at their places in [B, C], `base` elsewhere."""
        return base.to(values.dtype).masked_scatter(self.masked, values)


@torch.no_grad()
def advance(model: DreamModel, state: State, config: DenoiseConfig, look: bool = True) -> None:
    """One step of every row in one forward pass. `look` also keeps the predictions of the pass."""
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
    state.predictions = _look(model, state.ids, run) if look else None


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


def _look(model: DreamModel, ids: Tensor, run: Pass) -> Predictions:
    """Likeliest word, its probability and that of an end; `ids` is the canvas after this pass's commits."""
    logits = model.without_unusable(run.logits).float()
    norm = logits.logsumexp(-1)
    ending = (logits[:, model.ends].logsumexp(-1) - norm).exp()
    top, likeliest = logits.index_fill(-1, model.ends, -torch.inf).max(-1)
    is_end = torch.isin(ids, model.ends).float()
    still = ids == model.mask_id

    def settle(values: Tensor, committed: Tensor) -> Tensor:
        return torch.where(still, run.spread(values, committed), committed)

    return Predictions(
        ids=settle(likeliest, ids),
        confidence=settle((top - norm).exp(), torch.ones_like(is_end)),
        ending=settle(ending, is_end),
    )
