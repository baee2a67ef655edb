"""Loading: key layouts, configurations, and what is said of a broken checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cloud_anchor.errors import CheckpointError, CloudError, RequestError
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.families import DREAM_7B
from cloud_anchor.model.prompt_form import checkpoint_form, prompt_form, tokenizer_data
from cloud_anchor.options import DenoiseOptions
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, resolve_commit
from cloud_anchor.selection.select import Selection
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.tokenizer import Tokenizer
from lab.pairs.row_weights import round_checkpoint
from payload import Contract
from tests.cloud_anchor.cloud_checkpoints import make_dream, make_llada, without_tokenizer_json
from tests.cloud_anchor.cloud_reference import ReferenceModel
from tests.full_size.random_dream import write_random_dream


@pytest.fixture
def copy(dream_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dream_folder, tmp_path / "copy"))


def edit(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in data.items() if value is not ...}))


@pytest.mark.parametrize("options", [{"tied": True}, {"sharded": True}, {"kv_heads": 4, "hidden": 32}])
def test_dream_layouts(tmp_path: Path, options: dict[str, object]) -> None:
    folder = make_dream(tmp_path / "model", **options)
    model = load_model(str(folder), device="cpu")
    if "sharded" in options:
        weights: dict[str, torch.Tensor] = {}
        for shard in folder.glob("model-*.safetensors"):
            weights |= load_file(shard)
        save_file(weights, folder / "model.safetensors")
    ids = torch.tensor([5, 4, 3, model.mask_id, model.mask_id])
    torch.testing.assert_close(
        model.forward(ids[None])[0], ReferenceModel(folder).shifted(ids), atol=2e-4, rtol=1e-4
    )
    assert (model.mask_id, model.eos_ids) == (303, {300, 302})


def test_llada_layout_is_a_qwen2_without_biases_and_without_shift(dream_folder: Path, tmp_path: Path) -> None:
    folder = make_llada(tmp_path / "llada")
    model = load_model(str(folder), device="cpu")
    reference = ReferenceModel(dream_folder)
    reference.weights = {k: v for k, v in reference.weights.items() if not k.endswith(".bias")}
    ids = torch.tensor([5, 4, 3, model.mask_id, model.mask_id])
    torch.testing.assert_close(model.forward(ids[None])[0], reference.logits(ids), atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(
        model.forward(ids[None], keep=2)[0], reference.logits(ids)[3:], atol=2e-4, rtol=1e-4
    )
    edit(folder, block_type="sequential")
    with pytest.raises(CheckpointError, match="block_type"):
        load_model(str(folder), device="cpu")


def test_rope_settings_of_both_transformers_generations(dream_folder: Path, copy: Path) -> None:
    edit(copy, rope_theta=..., rope_scaling=..., rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    ids = torch.tensor([[5, 4, 3, 303, 303]])
    first, second = (load_model(str(f), device="cpu").forward(ids) for f in (dream_folder, copy))
    assert torch.equal(first, second)
    edit(copy, rope_parameters={"rope_type": "yarn", "rope_theta": 1e6})
    with pytest.raises(CheckpointError, match="yarn"):
        load_model(str(copy), device="cpu")


def states_commit(folder: Path, commit: object) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"commit": commit}))


def test_a_checkpoint_states_from_which_probability_its_tokens_commit(copy: Path) -> None:
    states_commit(copy, 0.6)
    pipeline = Pipeline.open(str(copy), device="cpu")
    config, _ = pipeline.resolve(pipeline.plan(), Selection("confidence"))
    assert (config.commit, config.stop) == (0.6, "complete")
    assert pipeline.resolve(pipeline.plan(), Selection("paper"))[0].commit == "quota"
    assert DenoiseOptions().config(pipeline.plan()).parallel == 0.6
    assert resolve_commit(DenoiseConfig(), sends_predictions=True).commit == 0.9


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def change_weights(folder: Path, gone: str = "", **more: torch.Tensor) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop(gone, None)
    save_file(weights | more, folder / "model.safetensors")


def scales_of_another_matrix(folder: Path) -> None:
    round_checkpoint(folder)
    change_weights(folder, **{"lm_head.weight.row_scale": torch.ones(7, 1)})


UP = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("breakage", "named"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
        (cut_weights, "model.safetensors"),
        (lambda f: change_weights(f, gone=UP), UP),
        (lambda f: change_weights(f, **{"model.extra": torch.zeros(1)}), "'model.extra'"),
        (
            lambda f: change_weights(f, **{"model.extra.row_scale": torch.ones(1, 1)}),
            "'model.extra.row_scale'",
        ),
        (scales_of_another_matrix, r"\[\d+, 1\]"),
        (lambda f: edit(f, model_type="qwen2"), "'qwen2'"),
        (lambda f: edit(f, model_type="mdlm"), "'mdlm'"),
        (lambda f: edit(f, hidden_size=...), "'hidden_size'"),
        (lambda f: edit(f, intermediate_size=64), r"\[64, 64\]"),
        (lambda f: edit(f, mask_token_id=...), "'mask_token_id'"),
        (lambda f: edit(f, use_sliding_window=True), "use_sliding_window"),
        (lambda f: states_commit(f, 2), "commit .* 2"),
        (lambda f: states_commit(f, "high"), "commit .*'high'"),
    ],
)
def test_broken_checkpoints(copy: Path, breakage: Callable[[Path], None], named: str) -> None:
    breakage(copy)
    with pytest.raises(CheckpointError, match=named):
        load_model(str(copy), device="cpu")


def test_weights_in_eight_bits_by_rows_open_as_others_do(dream_folder: Path, copy: Path) -> None:
    round_checkpoint(copy)
    whole, rounded = (load_model(str(folder), device="cpu").net for folder in (dream_folder, copy))
    for (name, before), after in zip(whole.named_parameters(), rounded.parameters(), strict=True):
        step = before.abs().amax(-1, keepdim=True) / 127 if before.ndim == 2 else torch.zeros(1)
        assert ((before - after).abs() <= 0.51 * step + 1e-6).all(), name
    assert max(path.stat().st_size for path in copy.glob("*.safetensors")) < 0.6 * max(
        path.stat().st_size for path in dream_folder.glob("*.safetensors")
    )


def test_prompts_that_do_not_fit(dream_folder: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    for prompts in ([[1] * 500], [[1], []]):
        with pytest.raises(RequestError):
            model.batch(prompts, 13)
    with pytest.raises(CloudError):
        load_model(str(dream_folder), dtype="int3")


def test_own_template_and_contract(dream_folder: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    form = prompt_form(model, dream_folder)
    text = form.template.render("Why?")
    assert text.startswith(
        "<|im_start|>system\nYou are a small test model.<|im_end|>\n<|im_start|>user\nWhy?"
    )
    assert form.ids("Why?") == form.tokenizer.encode(text)
    assert form.contract.vocab_size == 300
    assert model.eos_ids == form.contract.eos_ids
    allowed = model.without_unusable(torch.zeros(1, model.vocab_rows))[0].isfinite().nonzero().squeeze(1)
    assert allowed.tolist() == [*range(300), 300, 302]


def test_a_tokenizer_from_vocabulary_and_merges(dream_folder: Path, copy: Path) -> None:
    without_tokenizer_json(copy)
    form, original = checkpoint_form(copy), checkpoint_form(dream_folder)
    assert form.contract == original.contract
    text = "A baker's 24 loaves,\n\n  naïve — done.<|im_end|>"
    assert form.tokenizer.encode(text) == original.tokenizer.encode(text)
    (copy / "merges.txt").unlink()
    with pytest.raises(CheckpointError):
        tokenizer_data(copy)


class FakeBundle:
    """As much of a bundle as decides how a prompt is put."""

    def __init__(self, folder: Path, default_system: str | None) -> None:
        own = checkpoint_form(folder)
        self.path = folder
        self.tokenizer: Tokenizer = own.tokenizer
        self.template = type(own.template)(**{**vars(own.template), "default_system": default_system})
        self.contract = Contract.of(tokenizer_data(folder), self.template.to_json())
        self.form = PromptForm(self.tokenizer, self.template, self.contract)


def test_an_edge_bundle_puts_the_prompt_in_its_own_words(dream_folder: Path, tmp_path: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    own = prompt_form(model, dream_folder)
    bundle = FakeBundle(dream_folder, "Another default.")
    form = prompt_form(model, dream_folder, bundle)  # type: ignore[arg-type]
    assert form.contract == bundle.contract != own.contract
    assert form.ids("Why?") != own.ids("Why?")
    other: Any = FakeBundle(make_dream(tmp_path / "other", vocab_size=290), "Another default.")
    assert prompt_form(model, dream_folder, other).contract == own.contract, "its special tokens are others"


def test_a_checkpoint_in_four_shards_as_the_hub_has_them(tmp_path: Path) -> None:
    shape = replace(
        DREAM_7B,
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    folder = write_random_dream(tmp_path / "dream", shape)
    sizes = [path.stat().st_size for path in sorted(folder.glob("model-0000?-of-00004.safetensors"))]
    assert len(sizes) == 4
    assert max(sizes) < sum(sizes) / 2
    model = load_model(str(folder), device="cpu")
    form = prompt_form(model, folder)
    assert model.mask_id == form.contract.vocab_size + 3
    assert model.forward(torch.tensor([form.ids("Why?")])).isfinite().all()
