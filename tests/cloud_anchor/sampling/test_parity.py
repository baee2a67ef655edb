"""The sampler against second implementations, step by step; and what must not change its results."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.sampling.config import ORDERS, CommitRule, DenoiseConfig
from cloud_anchor.sampling.sampler import denoise, denoise_stream
from cloud_anchor.sampling.schedules import LLADA
from cloud_anchor.sampling.state import State
from cloud_anchor.sampling.step import advance
from lab.runs import canvas_at, denoise_steps
from tests.cloud_anchor.cloud_reference import ReferenceModel, sample, sample_in_blocks

DREAM = ("maskgit_plus", "entropy")
PROMPTS = [[5, 9, 17, 80, 3], [44, 2], [7, 7, 8, 120, 61, 33, 90, 14, 250]]
FILTERS = [(0.0, None), (0.2, 0.95), (1.0, 0.9), (1.0, None), (0.7, 0.99)]


@contextmanager
def shown(model: DreamModel) -> Iterator[list[torch.Tensor]]:
    """While open, a copy of every canvas (int64 [B, C]) that the model is given, in the order of passes."""
    canvases: list[torch.Tensor] = []
    logits = model.logits

    def recorded(batch: Any, canvas: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        canvases.append(canvas.detach().cpu().clone())
        return logits(batch, canvas, *rest, **more)

    model.logits = recorded  # type: ignore[method-assign]
    try:
        yield canvases
    finally:
        del model.logits


@pytest.fixture(scope="module")
def model(dream_folder: Path) -> DreamModel:
    return load_model(str(dream_folder), device="cpu")


@pytest.fixture(scope="module")
def in_blocks(dream_folder: Path) -> DreamModel:
    """The same weights as LLaDA reads them, position p predicted at p, in blocks of 8."""
    made = load_model(str(dream_folder), device="cpu")
    schedule = replace(LLADA, block=8)
    made.family = replace(made.family, shifted=False, schedule=schedule)
    return made


@pytest.fixture(scope="module")
def reference(dream_folder: Path) -> ReferenceModel:
    return ReferenceModel(dream_folder)


@pytest.mark.parametrize("order", DREAM)
@pytest.mark.parametrize(("temperature", "top_p"), FILTERS)
def test_every_step_equals_the_plain_sampler(
    model: DreamModel, reference: ReferenceModel, order: str, temperature: float, top_p: float | None
) -> None:
    for seed, prompt in enumerate(PROMPTS):
        filters: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "seed": seed}
        expected = sample(reference, prompt, canvas=40, steps=16, alg=order, **filters)
        config = DenoiseConfig(40, 16, order=order, **filters)
        (run,) = denoise(model, [prompt], config)
        assert [canvas_at(run, step) for step in range(1, 17)] == expected


def test_logits_equal_the_equations(model: DreamModel, reference: ReferenceModel) -> None:
    for prompt in PROMPTS:
        ids = torch.tensor(prompt + [model.mask_id] * 12)
        expected = reference.shifted(ids)
        torch.testing.assert_close(model.forward(ids[None])[0], expected, atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(model.forward(ids[None], keep=12)[0], expected[-12:], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_sees_what_follows_and_never_padding(dream_folder: Path, attention: str) -> None:
    model = load_model(str(dream_folder), device="cpu")
    model.net.config._attn_implementation = attention
    canvas = torch.full((3, 10), model.mask_id)
    wanted = torch.ones_like(canvas, dtype=torch.bool)
    together = model.logits(model.batch(PROMPTS, 10), canvas, wanted).view(3, 10, -1)
    for row, prompt in enumerate(PROMPTS):
        alone = model.logits(model.batch([prompt], 10), canvas[:1], wanted[:1])
        torch.testing.assert_close(together[row], alone, atol=3e-5, rtol=1e-4)
    changed = canvas[:1].clone()
    changed[0, 9] = 11
    after = model.logits(model.batch(PROMPTS[:1], 10), changed, wanted[:1])
    assert (after[0] - together[0, 0]).abs().max() > 1e-3, "position 0 does not see position 9"


@pytest.mark.parametrize(("block", "steps"), [(8, 32), (8, 12), (16, 10), (32, 32), (32, 5), (4, 8)])
def test_blocks_are_llada_s(in_blocks: DreamModel, reference: ReferenceModel, block: int, steps: int) -> None:
    model = copy.copy(in_blocks)
    model.family = replace(model.family, schedule=replace(LLADA, block=block))
    config = DenoiseConfig(canvas=32, total_steps=steps, order="maskgit_plus", commit="quota")
    for run in denoise(model, PROMPTS, config):
        expected = sample_in_blocks(reference, list(run.prompt_ids), canvas=32, block=block, steps=steps)
        assert [canvas_at(run, step) for step in range(1, run.steps + 1)] == expected


@pytest.mark.parametrize("commit", ["quota", 0.02])
def test_a_block_is_written_before_the_next(in_blocks: DreamModel, commit: CommitRule) -> None:
    for run in denoise(in_blocks, PROMPTS, DenoiseConfig(canvas=30, total_steps=30, commit=commit)):
        last = [max(run.when[at : at + 8]) for at in range(0, 30, 8)]
        first = [min(run.when[at : at + 8]) for at in range(0, 30, 8)]
        assert all(first[i + 1] > last[i] for i in range(3)), "the last block is a short one"
        assert run.finished


def test_fewer_steps_than_blocks_write_everything(in_blocks: DreamModel) -> None:
    config = DenoiseConfig(canvas=32, total_steps=3, commit="quota")
    assert all(run.finished for run in denoise(in_blocks, PROMPTS, config))


RUNS: list[dict[str, Any]] = [
    *({"order": order, "temperature": temperature} for order in ORDERS for temperature in (0.0, 0.9)),
    {"commit": 0.02},
    {"commit": 0.02, "order": "entropy", "temperature": 0.8},
    {"blocks": True, "temperature": 0.6},
    {"blocks": True, "commit": 0.02},
]


@pytest.fixture(params=RUNS, ids=str)
def run_of(
    request: pytest.FixtureRequest, model: DreamModel, in_blocks: DreamModel
) -> tuple[DreamModel, DenoiseConfig]:
    """A model and a configuration, of every order, commit rule and schedule."""
    options = dict(request.param)
    chosen = in_blocks if options.pop("blocks", False) else model
    return chosen, DenoiseConfig(canvas=24, total_steps=12, seed=2, **options)


def test_company_in_a_batch_changes_nothing(run_of: tuple[DreamModel, DenoiseConfig]) -> None:
    model, config = run_of
    together, waves = denoise(model, PROMPTS, config), denoise(model, PROMPTS, config, batch=2)
    for *runs, prompt in zip(together, waves, PROMPTS, strict=True):
        (alone,) = denoise(model, [prompt], config)
        for run in runs:
            assert (run.ids, run.when, run.predicted) == (alone.ids, alone.when, alone.predicted)
            assert run.confidence == pytest.approx(alone.confidence, abs=1e-4)


def test_committed_tokens_never_change(run_of: tuple[DreamModel, DenoiseConfig]) -> None:
    model, config = run_of
    canvases = [(s.ids.clone(), s.when.clone()) for s in denoise_steps(model, PROMPTS, config)]
    for (before, when), (after, later) in itertools.pairwise(canvases):
        kept = before != model.mask_id
        assert torch.equal(after[kept], before[kept])
        assert torch.equal(later[kept], when[kept])
    if config.order == "confidence":  # Dream's own orders let the model propose the mask token, and it stays
        assert (canvases[-1][0] != model.mask_id).all()


def test_going_on_equals_running_straight(run_of: tuple[DreamModel, DenoiseConfig]) -> None:
    model, whole = run_of
    part = replace(whole, steps=3)
    *_, state = denoise_steps(model, PROMPTS, whole)
    straight = state.results()
    *_, state = denoise_steps(model, PROMPTS, part)
    early = state.results()
    *_, state = denoise_steps(model, [], whole, state)
    assert state.results() == straight
    for first, full in zip(early, straight, strict=True):
        assert first.ids == canvas_at(full, 3)
        assert first.history == full.history[:3]


@pytest.mark.parametrize("options", [{}, {"commit": 0.9}, {"order": "entropy"}])
def test_pinned_tokens_stay_and_the_rest_is_denoised_around_them(
    model: DreamModel, options: dict[str, Any]
) -> None:
    config = DenoiseConfig(canvas=24, total_steps=12, **options)
    free = denoise(model, PROMPTS, config)
    state, pinned = State.start(model, PROMPTS, config), {0: 11, 7: 12}
    state.pin(1, pinned)
    with shown(model) as canvases:
        while min(state.steps) < 12:
            advance(state)
            if state.steps[0] == 3:  # and where it is still open, during the run
                place = int((state.ids[1] == model.mask_id).nonzero()[-1])
                state.pin(1, {place: 13})
                pinned[place] = 13
    first, run, _ = state.results()
    assert (first.ids, first.when) == (free[0].ids, free[0].when), "it is of one row"
    assert all(canvas[1, 0] == 11 and canvas[1, 7] == 12 for canvas in canvases)
    assert {at: run.ids[at] for at in pinned} == pinned
    assert not set(pinned) & {at for commit in run.history for at in commit.positions}
    assert [run.certainty[at] for at in pinned] == [1.0] * 3
    others = [at for at in range(24) if at not in pinned]
    assert [run.ids[at] for at in others] != [free[1].ids[at] for at in others], "the model sees them"


@pytest.mark.parametrize("options", [{}, {"stop": "complete"}, {"commit": 0.3}, {"stop": "prophet"}])
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_a_stream_gives_every_answer_as_if_alone(
    model: DreamModel, options: dict[str, object], batch: int
) -> None:
    config = DenoiseConfig(canvas=20, total_steps=10, steps=9, temperature=0.6, **options)  # type: ignore[arg-type]
    prompts = [[5 + i, 9, *range(20, 20 + 3 * (i % 3))] for i in range(5)]
    asked: list[int] = []

    def source() -> Iterator[list[int]]:
        for index, prompt in enumerate(prompts):
            asked.append(index)
            yield prompt

    found = {}
    for index, run in denoise_stream(model, source(), config, batch):
        assert len(asked) <= len(found) + batch, "no prompt is taken before there is a place for it"
        found[index] = run
    assert sorted(found) == list(range(5))
    for index, prompt in enumerate(prompts):
        (alone,) = denoise(model, [prompt], config)
        assert (found[index].ids, found[index].when) == (alone.ids, alone.when)
        assert (found[index].steps, found[index].stopped_by) == (alone.steps, alone.stopped_by)


def test_stopping_when_the_answer_is_complete_loses_nothing(model: DreamModel) -> None:
    def config(stop: str | None = None) -> DenoiseConfig:
        return DenoiseConfig(canvas=24, total_steps=24, temperature=0.0, stop=stop)

    usual = Counter(token for run in denoise(model, PROMPTS, config()) for token in run.ids)
    head = model.net.lm_head.weight
    kept = head.clone()
    # A model that ends its answers early: an end marker takes the place of its favourite word.
    head[300] = head[usual.most_common(1)[0][0]] * 2.0
    try:
        full = denoise(model, PROMPTS, config())
        early = denoise(model, PROMPTS, config("complete"))
    finally:
        head.copy_(kept)
    assert [run.answer for run in early] == [run.answer for run in full]
    assert any(run.stopped_by == "complete" and run.steps < 24 for run in early)
    for run, whole in zip(early, full, strict=True):
        assert run.history == whole.history[: run.steps]
