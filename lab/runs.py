"""Diffusion runs of the items: computed once per order, stored as JSON, read back at any of their stops.

A run always goes to its end: the commits give the canvas after each step, and the predictions are kept at the
stops. Responsible for computing and storing runs. Not responsible for their use (see `lab`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.state import State
from cloud_anchor.sampling.step import advance
from lab.conditions import ORDERS, PARALLEL, plan
from lab.questions.items import WORD_PROBLEMS, Item

SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
PLANS = (8, 13, 16, 24, 32, 48, 64, 96, 128)
"""Steps of the replanned runs of the published experiment, out of 128."""


def plans(total_steps: int) -> list[int]:
    """The published numbers of steps, of another plan as many shares of it."""
    return sorted({max(1, round(count * total_steps / PLANS[-1])) for count in PLANS})


def grid(total_steps: int) -> list[int]:
    """The steps at which one plan is stopped: shares of it, and the numbers of steps that are replanned."""
    return sorted({max(1, int(share * total_steps + 1e-9)) for share in SHARES} | {*plans(total_steps)})


def stops_of(items: Sequence[Item], steps: Sequence[int], total_steps: int) -> list[int]:
    """The steps whose predictions are kept: those of all comparisons, of word problems the whole grid."""
    word_problems = any(item.benchmark in WORD_PROBLEMS for item in items)
    return sorted({*steps, *(grid(total_steps) if word_problems else ())})


@dataclass(frozen=True)
class Run:
    """One finished run of one prompt in one order.

    ids, when:   as in Denoised, of the finished canvas.
    predictions: by step, the tokens of the predicted answer and the probability of each.
    reversals:   times that a committed token was changed or masked again; section 2.1 says there are none.
    """

    prompt_ids: tuple[int, ...]
    ids: list[int]
    when: list[int]
    predictions: Mapping[int, tuple[list[int], list[float]]]
    total_steps: int
    mask_id: int
    eos_ids: frozenset[int]
    reversals: int = 0

    def at(self, step: int) -> Denoised:
        """The run as it was after `step` steps; raises KeyError for a step whose predictions are not kept."""
        predicted, confidence = self.predictions[step]
        early = [0 < done <= step for done in self.when]
        return Denoised.of_draft(
            self.prompt_ids,
            predicted,
            confidence,
            ids=[token if there else self.mask_id for token, there in zip(self.ids, early, strict=True)],
            when=[done if there else 0 for done, there in zip(self.when, early, strict=True)],
            steps=step,
            total_steps=self.total_steps,
            mask_id=self.mask_id,
            eos_ids=self.eos_ids,
        )

    @property
    def full(self) -> Denoised:
        return self.at(self.total_steps)

    @property
    def answer(self) -> list[int]:
        """Token ids of the finished answer, without the end marker."""
        return self.full.answer

    def to_json(self) -> dict[str, Any]:
        kept = {str(step): list(pair) for step, pair in self.predictions.items()}
        return {"ids": self.ids, "when": self.when, "predictions": kept, "reversals": self.reversals}

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], prompt_ids: Sequence[int], total_steps: int, model: MaskedModel
    ) -> Run:
        kept = {int(step): (pair[0], pair[1]) for step, pair in data["predictions"].items()}
        about = (total_steps, model.mask_id, model.eos_ids, int(data["reversals"]))
        return cls(tuple(prompt_ids), data["ids"], data["when"], kept, *about)


def denoise_steps(
    model: MaskedModel, prompts: Sequence[Sequence[int]], config: DenoiseConfig, state: State | None = None
) -> Iterator[State]:
    """Yields the state after each step, up to config.steps, of new answers or of those in `state`.

    For observing a run and for continuing one: the same object each time, advanced in place. Stop rules do
    not apply.
    """
    if not prompts and state is None:
        raise RequestError("expected at least one prompt, found none")
    state = state or State.start(model, prompts, config)
    state.config = config
    while min(state.steps) < config.run_steps:
        advance(state)
        yield state


def canvas_at(run: Denoised, step: int) -> list[int]:
    """The canvas as it was after `step` steps."""
    pairs = zip(run.ids, run.when, strict=True)
    return [token if 0 < done <= step else run.mask_id for token, done in pairs]


def make_runs(
    model: MaskedModel, prompts: Sequence[Sequence[int]], base: DenoiseConfig, stops: Sequence[int]
) -> list[dict[str, Run]]:
    """For each prompt its run in every order and the one that commits in parallel, with predictions at
    `stops` and at the end.
    """
    runs = {name: run_once(model, prompts, plan(name, base), stops) for name in (*ORDERS, PARALLEL)}
    return [dict(zip(runs, of, strict=True)) for of in zip(*runs.values(), strict=True)]


def run_once(
    model: MaskedModel, prompts: Sequence[Sequence[int]], config: DenoiseConfig, stops: Sequence[int]
) -> list[Run]:
    """One run of each prompt, all of config's steps."""
    kept: list[dict[int, tuple[list[int], list[float]]]] = [{} for _ in prompts]
    before = torch.full((len(prompts), config.canvas), model.mask_id)
    reversals = torch.zeros(len(prompts), dtype=torch.int64)
    for state in denoise_steps(model, prompts, config):
        step, canvas = state.steps[0], state.ids.cpu().clone()
        reversals += ((before != model.mask_id) & (before != canvas)).sum(1)
        before = canvas
        if step in stops or step == config.run_steps:
            finals = state.results()
            for row, run in zip(kept, finals, strict=True):
                size = run.predicted_length
                row[step] = (run.predicted[:size], [round(p, 5) for p in run.confidence[:size]])
    return [
        Run(run.prompt_ids, run.ids, run.when, at, config.total_steps, run.mask_id, run.eos_ids, count)
        for run, at, count in zip(finals, kept, reversals.tolist(), strict=True)
    ]
