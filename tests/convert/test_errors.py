"""Errors of users and networks: one clear message each, and no files left behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import errors as hub_errors
from safetensors.numpy import load_file, save_file

import convert.preflight
from convert import ConvertError
from convert import convert as run_convert
from convert.errors import (
    ArchitectureError,
    HubError,
    OptionError,
    ResourceError,
    SourceError,
    TemplateError,
)
from convert.stages import Workspace
from lab.benches.random_checkpoint import write_tokenizer

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def broken(checkpoint_folder: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint to damage."""
    return Path(shutil.copytree(checkpoint_folder, tmp_path / "broken"))


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def refused(folder: Path | str, kind: type[ConvertError], said: str = "", **options: Any) -> None:
    """A conversion that fails at once and leaves neither a bundle nor a working folder."""
    out = Path(options.pop("out", Path(folder).parent / "out"))
    with pytest.raises(kind) as error:
        run_convert(folder, out, **{"threads": 1, **options})
    assert said in str(error.value)
    assert not out.exists()
    assert not out.with_name(out.name + ".partial").exists()


def _truncated(keep: int) -> Callable[[Path], object]:
    def cut(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:keep])

    return cut


def _without_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")


def _edited(file: str, **changes: Any) -> Callable[[Path], object]:
    return lambda folder: edit(folder / file, lambda data: data.update(changes))


def _vocabulary(size: int) -> Callable[[Path], object]:
    return lambda folder: write_tokenizer(folder, vocab_size=size)


def _template_that_needs_jinja(folder: Path) -> None:
    def trim(config: dict[str, Any]) -> None:
        config["chat_template"] = config["chat_template"].replace("['content']", "['content'] | trim")

    edit(folder / "tokenizer_config.json", trim)


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def _another_without_the_end_of_an_answer(folder: Path) -> None:
    edit(folder / "config.json", lambda c: c.update(architectures=["GPT2LMHeadModel"]))
    edit(folder / "tokenizer.json", lambda t: t.update(added_tokens=[{"id": 300, "content": "<|eot_id|>"}]))


ADDED = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        (shutil.rmtree, SourceError, "broken"),
        (lambda f: (f / "config.json").unlink(), SourceError, "config.json"),
        (lambda f: (f / "config.json").write_text("{"), SourceError, "JSON"),
        (lambda f: (f / "model.safetensors").rename(f / "model.bin"), SourceError, "*.safetensors"),
        *((_truncated(keep), SourceError, "model.safetensors") for keep in (0, 7, 500, 100_000)),
        (_without_a_tensor, SourceError, "model.layers.1.mlp.up_proj.weight"),
        (_edited("config.json", intermediate_size=96), SourceError, "(64, 96)"),
        (_vocabulary(330), SourceError, "320 rows"),
        (_vocabulary(290), SourceError, "eos_token_id"),
        (
            # An added token that only transformers sees.
            _edited(
                "tokenizer_config.json",
                added_tokens_decoder={"303": {**ADDED, "content": "loaves", "special": False}},
            ),
            SourceError,
            "transformers",
        ),
        (lambda f: (f / "tokenizer.json").unlink(), SourceError, "tokenizer"),
        (
            lambda f: edit(f / "tokenizer_config.json", lambda c: c.pop("chat_template")),
            TemplateError,
            "chat_template",
        ),
        (_template_that_needs_jinja, TemplateError, "message"),
        (_edited("tokenizer_config.json", chat_template=ENDLESS), TemplateError, "within"),
        (_edited("config.json", num_hidden_layers=10**7), SourceError, "num_hidden_layers"),
        (_edited("config.json", num_attention_heads=0), SourceError, "num_attention_heads"),
        *(
            (_edited("config.json", **change), ArchitectureError, said)
            for change, said in (
                ({"use_sliding_window": True}, "sliding_window"),
                ({"hidden_act": "gelu"}, "gelu"),
                ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
                ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e6}}, "dynamic"),
                ({"architectures": ["LlamaForCausalLM"], "attention_bias": True}, "attention_bias"),
                ({"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": True}, "sliding_window"),
                ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
            )
        ),
        (_another_without_the_end_of_an_answer, ArchitectureError, "GPT2LMHeadModel"),
    ],
)
def test_a_damaged_checkpoint(
    broken: Path, damage: Callable[[Path], object], kind: type[ConvertError], said: str
) -> None:
    damage(broken)
    refused(broken, kind, said)


def test_weights_that_are_no_numbers(broken: Path) -> None:
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"][3] = np.nan
    save_file(tensors, broken / "model.safetensors")
    with pytest.raises(SourceError, match="norm"):
        run_convert(broken, broken.parent / "out", variants=["fp32"], threads=1)


@pytest.mark.parametrize(
    "options",
    [
        {"variants": ["int3"]},
        {"variants": []},
        {"context": 0},
        {"context": 513},
        {"prompts": ["Too short."]},
        {"context": 40},
        {"revision": "main"},
        {"thresholds": {"int4": convert.Thresholds()}},
        {"out": Path("/")},
    ],
)
def test_options_that_make_no_sense(checkpoint_folder: Path, tmp_path: Path, options: Any) -> None:
    with pytest.raises(OptionError):
        run_convert(checkpoint_folder, **{"out": tmp_path / "out", "threads": 1, **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scarce", ["disk", "memory"])
def test_too_little_room(
    scarce: str, checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    if scarce == "disk":
        monkeypatch.setattr(convert.preflight.shutil, "disk_usage", lambda path: usage)
    else:
        monkeypatch.setattr(convert.preflight, "available_memory", lambda: 64 << 20)
    refused(checkpoint_folder, ResourceError, scarce, out=tmp_path / "out")


def test_a_disk_that_fills_while_weights_are_written(
    checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device", "model.onnx.data")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("convert.graph.nodes.GraphWriter.weight", full)
        with pytest.raises(ResourceError, match="onnx"):
            run_convert(checkpoint_folder, out, variants=["fp32"], threads=1)
    assert not out.exists()
    run_convert(checkpoint_folder, out, variants=["fp32"], threads=1)
    assert out.exists()


def test_a_target_that_is_something_else_is_never_replaced(checkpoint_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(OptionError):
        run_convert(checkpoint_folder, tmp_path / "photos", force=True)
    assert (tmp_path / "photos" / "holiday.jpg").read_bytes() == b"precious"


def test_two_conversions_into_one_target(checkpoint_folder: Path, tmp_path: Path) -> None:
    with Workspace(tmp_path / "out"), pytest.raises(ResourceError):
        run_convert(checkpoint_folder, tmp_path / "out", threads=1)


def _answered(kind: type[Exception]) -> Exception:
    """An error of the hub's client, whose constructors want another response object in each of its
    versions.
    """
    error = kind.__new__(kind)
    Exception.__init__(error, "503 from the hub")
    return error


@pytest.mark.parametrize(
    "raised",
    [
        hub_errors.GatedRepoError,
        hub_errors.RepositoryNotFoundError,
        hub_errors.RevisionNotFoundError,
        hub_errors.LocalEntryNotFoundError,
        hub_errors.HfHubHTTPError,
        ConnectionResetError(104, "Connection reset by peer"),
        OSError(28, "No space left on device"),
    ],
)
def test_what_the_hub_can_answer(
    raised: Exception | type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise _answered(raised) if isinstance(raised, type) else raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    refused("Owner/Model", HubError, revision="v9", out=tmp_path / "out")


def test_a_hub_model_is_named_by_its_commit(
    checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: dict[str, Any] = {}
    snapshot = Path(shutil.copytree(checkpoint_folder, tmp_path / "snapshots" / "0123abc"))

    def download(name: str, **options: Any) -> str:
        requested.update(options, name=name)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    manifest = run_convert("Owner/Model", tmp_path / "out", variants=["fp32"], revision="main", threads=1)
    assert (requested["name"], requested["revision"]) == ("Owner/Model", "main")
    assert not any(pattern.endswith(".py") for pattern in requested["allow_patterns"])
    assert (manifest.model.id, manifest.model.revision) == ("Owner/Model", "0123abc")
