"""Block diffusion: every step as the published code's, alone and in a batch, with the cache and without."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cloud_anchor.errors import RequestError
from cloud_anchor.model.block_diffusion import BlockModel, BlockRow, Layers, Pass
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from tests.cloud_anchor.block_cases import END, Case, cases, write_model
from tests.cloud_anchor.cloud_checkpoints import BLOCK_FAMILIES
from tests.vectors.make_block_vectors import published

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "block_vectors.json").read_text())


@pytest.fixture(scope="module", params=sorted(BLOCK_FAMILIES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> BlockModel:
    found = load_model(str(write_model(tmp_path_factory.mktemp(kind) / "model", kind)), device="cpu")
    assert isinstance(found, BlockModel)
    return found


def config_of(case: Case) -> DenoiseConfig:
    return DenoiseConfig(canvas=case.canvas, total_steps=case.canvas + case.block, commit=case.threshold)


def check(found: Denoised, vector: dict[str, Any]) -> None:
    """Ids and steps up to the end of the answer: the published code may commit some of a block behind it."""
    answer = vector["answer"]
    size = answer.index(END) + 1 if END in answer else len(answer)
    assert found.ids[:size] == answer[:size]
    assert found.when[:size] == vector["when"][:size]


def test_every_step_of_single_prompts_equals_the_published_code(kind: str, model: BlockModel) -> None:
    found = cases(kind)
    assert len(found) == len(VECTORS[kind]) == 50
    for case, vector in zip(found, VECTORS[kind], strict=True):
        assert case.prompt == vector["prompt"]
        check(denoise(model, [case.prompt], config_of(case))[0], vector)
    # the vectors would show little if each step committed one token, or all
    steps = sum(max(vector["when"]) for vector in VECTORS[kind])
    tokens = sum(len(vector["answer"]) for vector in VECTORS[kind])
    assert 1.05 < tokens / steps < 4


def test_prompts_of_all_lengths_in_a_batch_give_the_same(kind: str, model: BlockModel) -> None:
    found = cases(kind)
    runs = denoise(model, [case.prompt for case in found], config_of(found[0]), batch=7)
    for run, vector in zip(runs, VECTORS[kind], strict=True):
        check(run, vector)


def test_the_cache_is_exact(kind: str, model: BlockModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass's logits equal those of one over the whole text, without a cache."""
    plain = 0
    run = BlockModel.run

    def both(self: BlockModel, passes: list[Pass]) -> tuple[torch.Tensor, list[Layers]]:
        nonlocal plain
        logits, caches = run(self, passes)
        bare = [replace(each, row=replace(each.row, kept=0, cache=())) for each in passes]
        whole = torch.cat([run(self, [each])[0] for each in bare])
        torch.testing.assert_close(logits, whole, atol=1e-4, rtol=1e-4)
        plain += sum(each.row.kept > 0 for each in passes)
        return logits, caches

    monkeypatch.setattr(BlockModel, "run", both)
    found = cases(kind)[:3]
    denoise(model, [case.prompt for case in found], config_of(found[0]))
    assert plain > 10


def test_attention_is_causal_from_block_to_block(kind: str, model: BlockModel) -> None:
    """Against the stock modules with a mask of their own kind: no pass sees what is behind its block."""
    size = model.block
    tokens = torch.arange(10, 10 + 2 * size)
    block = torch.arange(2 * size) // size
    mask = torch.zeros(1, 1, 2 * size, 2 * size).masked_fill(block[None] > block[:, None], -torch.inf)
    with torch.no_grad():
        states = model.net(input_ids=tokens[None], attention_mask={"full_attention": mask}, use_cache=False)
    first = tokens[:size].tolist()
    row = BlockRow(
        1, (*first, *[model.mask_id] * size), (0,) * 2 * size, (0.0,) * 2 * size, torch.Generator()
    )
    shift = int(model.family.shifted)
    logits, _ = model.run([Pass(row, 0, size, list(range(shift, size)), [])])
    torch.testing.assert_close(logits, states.logits[0, : size - shift], atol=1e-4, rtol=1e-4)


def test_planned_steps_suffice(kind: str, model: BlockModel) -> None:
    case = cases(kind)[0]
    config = DenoiseConfig(canvas=48, total_steps=24, commit="quota")
    (run,) = denoise(model, [case.prompt], config)
    assert run.stopped_by in ("complete", "finished")
    assert run.steps <= 24


def test_a_draft_breaks_off_at_the_open_block(kind: str, model: BlockModel) -> None:
    case = cases(kind)[0]
    (run,) = denoise(model, [case.prompt], replace(config_of(case), steps=3))
    assert not run.draft_ends
    assert run.length is None
    assert (len(case.prompt) + run.predicted_length) % model.block == 0
    assert run.ending_with(run.predicted_answer) is None
    assert all(0 < chance <= 1 for chance in run.confidence[: run.predicted_length])


@pytest.mark.parametrize("change", [{"order": "entropy"}, {"stop": "prophet"}])
def test_options_of_other_samplers_are_refused(model: BlockModel, change: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        denoise(model, [[1]], replace(DenoiseConfig(canvas=8, total_steps=8), **change))


def test_the_vectors_are_those_of_the_published_code_that_is_here() -> None:
    """BLOCK_JUDGES: the four folders that `make_block_vectors` takes, with colons between them."""
    if "BLOCK_JUDGES" not in os.environ:
        pytest.skip("no published code of Fast-dLLM v2 and SDAR: set BLOCK_JUDGES")
    assert published(*os.environ["BLOCK_JUDGES"].split(":")) == VECTORS
