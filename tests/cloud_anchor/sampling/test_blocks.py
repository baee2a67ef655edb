"""Decoding in blocks: the published procedures token for token, batches, and whole canvases as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.families import FAMILIES
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise, denoise_stream
from tests.cloud_anchor.cloud_reference import ReferenceModel, sample_in_blocks

PROMPTS = [[5, 9, 20], [7, 8, 9, 10, 11, 12], [30, 31, 32, 33]]


@pytest.fixture(scope="module")
def model(dream_folder: Path) -> DreamModel:
    """Weights of a Dream as LLaDA reads them: position p is predicted at p."""
    made = load_model(str(dream_folder), device="cpu")
    made.family = replace(made.family, shifted=False)
    return made


@pytest.fixture(scope="module")
def reference(dream_folder: Path) -> ReferenceModel:
    return ReferenceModel(dream_folder)


def steps_of(run: Denoised) -> list[list[int]]:
    """The canvas after each step."""
    return [
        [token if 0 < when <= step else run.mask_id for token, when in zip(run.ids, run.when, strict=True)]
        for step in range(1, run.steps + 1)
    ]


@pytest.mark.parametrize(("block", "steps"), [(8, 32), (8, 12), (16, 10), (32, 32), (32, 5), (4, 8)])
def test_blocks_are_llada_s(model: DreamModel, reference: ReferenceModel, block: int, steps: int) -> None:
    config = DenoiseConfig(
        canvas=32,
        total_steps=steps,
        order="maskgit_plus",
        commit="quota",
        schedule="linear",
        block_length=block,
    )
    for run in denoise(model, PROMPTS, config):
        expected = sample_in_blocks(reference, list(run.prompt_ids), canvas=32, block=block, steps=steps)
        assert steps_of(run) == expected


@pytest.mark.parametrize("commit", ["quota", 0.02])
def test_a_block_is_written_before_the_next(model: DreamModel, commit: str | float) -> None:
    config = DenoiseConfig(canvas=30, total_steps=30, commit=commit, block_length=8)  # type: ignore[arg-type]
    for run in denoise(model, PROMPTS, config):
        last = [max(run.when[at : at + 8]) for at in range(0, 30, 8)]
        first = [min(run.when[at : at + 8]) for at in range(0, 30, 8)]
        assert all(first[i + 1] > last[i] for i in range(3)), "the last block is a short one"
        assert run.finished


@pytest.mark.parametrize("commit", ["quota", 0.02])
def test_company_in_a_batch_changes_nothing(model: DreamModel, commit: str | float) -> None:
    config = DenoiseConfig(canvas=24, total_steps=24, commit=commit, block_length=8, temperature=0.6)  # type: ignore[arg-type]
    alone = [denoise(model, [prompt], config)[0] for prompt in PROMPTS]
    for index, run in denoise_stream(model, PROMPTS, config, 2):
        assert (run.ids, run.when) == (alone[index].ids, alone[index].when)


@pytest.mark.parametrize("order", ["origin", "maskgit_plus", "confidence"])
def test_one_block_is_the_whole_canvas(model: DreamModel, order: str) -> None:
    config = DenoiseConfig(canvas=24, total_steps=10, order=order)
    for length in (24, 99):
        blocks = replace(config, block_length=length)
        assert denoise(model, PROMPTS, blocks) == denoise(model, PROMPTS, config)
        assert blocks.to_json() == config.to_json()


def test_fewer_steps_than_blocks_write_everything(model: DreamModel) -> None:
    config = DenoiseConfig(canvas=32, total_steps=3, schedule="linear", block_length=4, commit="quota")
    assert all(run.finished for run in denoise(model, PROMPTS, config))


def test_a_family_has_the_blocks_of_its_published_sampler(dream_folder: Path, model: DreamModel) -> None:
    pipeline = Pipeline.open(str(dream_folder), device="cpu")
    assert (pipeline.plan().block_length, pipeline.plan().schedule) == (None, "dream")
    pipeline.model.family = FAMILIES["llada"]
    assert (pipeline.plan().block_length, pipeline.plan().schedule) == (32, "linear")


def test_wrong_blocks_are_refused() -> None:
    with pytest.raises(RequestError, match="block length: expected at least 1 position, found 0"):
        DenoiseConfig(block_length=0)
    with pytest.raises(RequestError, match="block add: expected above 0, at most 1, found 0"):
        DenoiseConfig(block_add=0)


def test_whole_products_are_not_rounded_up() -> None:
    from cloud_anchor.sampling.schedules import linear
    from cloud_anchor.sampling.unmasking import quotas

    for steps in range(1, 300):
        left = 256
        for step in range(steps):
            masked = torch.ones(1, left, dtype=torch.bool)
            count = int(quotas(masked, linear(steps)[step : step + 1], up=True))
            assert count == 256 // steps + (step < 256 % steps)
            left -= count
