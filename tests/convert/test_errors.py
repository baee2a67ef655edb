"""Errors of users and networks: one clear message each, and no files left behind."""

from __future__ import annotations

import gzip
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
from convert.source.architectures import QWEN25_VOCAB_HASH, QWEN25_VOCAB_SIZE
from convert.stages import Workspace
from payload import Contract

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def broken(checkpoint_folder: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint to damage."""
    return Path(shutil.copytree(checkpoint_folder, tmp_path / "broken"))


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def refused(folder: Path | str, kind: type[ConvertError], *parts: str, **options: Any) -> str:
    """The message of a conversion that fails at once and leaves neither a bundle nor a working folder."""
    out = Path(options.pop("out", Path(folder).parent / "out"))
    with pytest.raises(kind) as caught:
        run_convert(folder, out, threads=1, **options)
    assert not out.exists()
    assert not out.with_name(out.name + ".partial").exists()
    for part in parts:
        assert part in str(caught.value)
    return str(caught.value)


def test_no_such_folder(tmp_path: Path) -> None:
    refused(tmp_path / "absent", SourceError, "expected a checkpoint folder", "absent")


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", SourceError, "config.json")


def test_a_config_that_is_no_json(broken: Path) -> None:
    (broken / "config.json").write_text("{", encoding="utf-8")
    refused(broken, SourceError, "expected JSON")


def test_no_safetensors(broken: Path) -> None:
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    refused(broken, SourceError, "*.safetensors")


@pytest.mark.parametrize("keep", [0, 7, 500, 100_000])
def test_a_truncated_safetensors_file(broken: Path, keep: int) -> None:
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(broken, SourceError, "model.safetensors", "fetch it again")


def test_a_missing_tensor(broken: Path) -> None:
    tensors = load_file(broken / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, broken / "model.safetensors")
    refused(broken, SourceError, "model.layers.1.mlp.up_proj.weight", "missing")


def test_a_tensor_of_another_shape(broken: Path) -> None:
    edit(broken / "config.json", lambda c: c.update(intermediate_size=96))
    refused(broken, SourceError, "(64, 96)", "(64, 128)")


def test_weights_that_are_no_numbers(broken: Path) -> None:
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"][3] = np.nan
    save_file(tensors, broken / "model.safetensors")
    with pytest.raises(SourceError, match=r"finite weights.*model\.norm\.weight"):
        run_convert(broken, broken.parent / "out", variants=["fp32"], threads=1)


def test_a_tokenizer_of_another_model(broken: Path, checkpoint_folder: Path) -> None:
    from lab.benches.random_checkpoint import write_tokenizer

    write_tokenizer(broken, vocab_size=330)
    refused(broken, SourceError, "embedding's 320 rows", "do not belong together")
    write_tokenizer(broken, vocab_size=290)
    refused(broken, SourceError, "eos_token_id", "do not belong together")


def test_a_tokenizer_read_differently_on_the_device(broken: Path) -> None:
    """An added token that only tokenizer_config.json has."""

    def add(config: dict[str, Any]) -> None:
        token = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
        config["added_tokens_decoder"] = {"303": {**token, "content": "loaves", "special": False}}

    edit(broken / "tokenizer_config.json", add)
    refused(broken, SourceError, "transformers read")


def test_no_tokenizer(broken: Path) -> None:
    (broken / "tokenizer.json").unlink()
    refused(broken, SourceError, "expected a tokenizer")


def test_no_chat_template(broken: Path) -> None:
    edit(broken / "tokenizer_config.json", lambda c: c.pop("chat_template"))
    refused(broken, TemplateError, "expected one chat_template")


def test_a_chat_template_that_needs_jinja(broken: Path) -> None:
    def trim(config: dict[str, Any]) -> None:
        config["chat_template"] = config["chat_template"].replace("['content']", "['content'] | trim")

    edit(broken / "tokenizer_config.json", trim)
    refused(broken, TemplateError, "cannot be expressed as fixed text")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_sliding_window": True}, "sliding_window"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e6}}, "dynamic"),
        ({"architectures": ["LlamaForCausalLM"], "attention_bias": True}, "attention_bias"),
        ({"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": True}, "sliding_window"),
    ],
)
def test_features_the_graphs_do_not_have(broken: Path, change: dict[str, Any], said: str) -> None:
    edit(broken / "config.json", lambda c: c.update(change))
    refused(broken, ArchitectureError, said)


def test_rope_settings_of_transformers_5_are_read(broken: Path) -> None:
    from convert.source.checkpoint import Checkpoint

    edit(
        broken / "config.json",
        lambda c: (
            c.pop("rope_theta", None),
            c.update(rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
        ),
    )
    assert Checkpoint(broken).shape.rope_theta == 5e5


def test_another_architecture_with_another_vocabulary(broken: Path) -> None:
    """Qwen's special names are there, its words are not."""
    edit(broken / "config.json", lambda c: c.update(architectures=["GPT2LMHeadModel"]))
    refused(broken, ArchitectureError, "vocabulary differs", str(QWEN25_VOCAB_SIZE), "300 tokens", "Llama")


def test_another_architecture_without_the_end_of_an_answer(broken: Path) -> None:
    edit(broken / "config.json", lambda c: c.update(architectures=["GPT2LMHeadModel"]))
    edit(broken / "tokenizer.json", lambda t: t.update(added_tokens=[{"id": 300, "content": "<|eot_id|>"}]))
    refused(broken, ArchitectureError, "GPT2LMHeadModel", "vocabulary differs", "ends an answer")


def test_another_architecture_with_the_same_vocabulary(broken: Path) -> None:
    source = REPOSITORY.parent / "shared" / "tokenizer" / "qwen2.5_tokenizer.json.gz"
    if not source.is_file():
        pytest.skip("needs the published Qwen2.5 tokenizer beside the repository")
    (broken / "tokenizer.json").write_bytes(gzip.decompress(source.read_bytes()))
    found = Contract.of(json.loads((broken / "tokenizer.json").read_text(encoding="utf-8")), {})
    assert (found.vocab_size, found.vocab_hash) == (QWEN25_VOCAB_SIZE, QWEN25_VOCAB_HASH)
    edit(broken / "config.json", lambda c: c.update(architectures=["Qwen3MoeForCausalLM"]))
    refused(broken, ArchitectureError, "Qwen3MoeForCausalLM", "vocabulary is the same", "chat template")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variants": ["int3"]}, "int3"),
        ({"variants": []}, "expected some of"),
        ({"context": 0}, "context"),
        ({"context": 513}, "512"),
        ({"context": 40}, "verification prompt"),
        ({"prompts": ["Too short."]}, "256 positions"),
        ({"revision": "main"}, "no revisions"),
        ({"thresholds": {"int4": convert.Thresholds()}}, "int4"),
    ],
)
def test_options_that_make_no_sense(checkpoint_folder: Path, tmp_path: Path, options: Any, said: str) -> None:
    with pytest.raises(OptionError, match="(?s)" + said):
        run_convert(checkpoint_folder, tmp_path / "out", threads=1, **options)
    assert not (tmp_path / "out").exists()


def test_too_little_disk(checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(convert.preflight.shutil, "disk_usage", lambda path: usage)
    refused(checkpoint_folder, ResourceError, "free disk", "0.00 GiB", out=tmp_path / "out")


def test_too_little_memory(checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert.preflight, "available_memory", lambda: 64 << 20)
    refused(checkpoint_folder, ResourceError, "available memory", out=tmp_path / "out")


def test_a_disk_that_fills_while_weights_are_written(
    checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device", "model.onnx.data")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("convert.graph.nodes.GraphWriter.weight", full)
        with pytest.raises(
            ResourceError, match=r"model\.onnx\.data.*No space left.*run the same command again"
        ):
            run_convert(checkpoint_folder, out, variants=["fp32"], threads=1)
    assert not out.exists()
    run_convert(checkpoint_folder, out, variants=["fp32"], threads=1)
    assert out.exists()


def test_a_root_folder_as_the_target(checkpoint_folder: Path) -> None:
    with pytest.raises(OptionError, match="root folder"):
        run_convert(checkpoint_folder, Path("/"))


def test_a_target_that_is_something_else_is_never_replaced(checkpoint_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(OptionError, match="something else"):
        run_convert(checkpoint_folder, tmp_path / "photos", force=True)
    assert (tmp_path / "photos" / "holiday.jpg").read_bytes() == b"precious"


def test_two_conversions_into_one_target(checkpoint_folder: Path, tmp_path: Path) -> None:
    with Workspace(tmp_path / "out"), pytest.raises(ResourceError, match="another conversion"):
        run_convert(checkpoint_folder, tmp_path / "out", threads=1)


def _answered(kind: type[Exception]) -> Exception:
    """An error of the hub's client, whose constructors want another response object in each of its
    versions.
    """
    error = kind.__new__(kind)
    Exception.__init__(error, "503 from the hub")
    return error


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (hub_errors.GatedRepoError, "consent"),
        (hub_errors.RepositoryNotFoundError, "none of this name"),
        (hub_errors.RevisionNotFoundError, "revision 'v9'"),
        (hub_errors.LocalEntryNotFoundError, "cannot be reached"),
        (hub_errors.HfHubHTTPError, "files already fetched are kept"),
        (ConnectionResetError(104, "Connection reset by peer"), "files already fetched are kept"),
        (OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_what_the_hub_can_answer(
    raised: Exception | type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise _answered(raised) if isinstance(raised, type) else raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    refused("Owner/Model", HubError, "Owner/Model", said, revision="v9", out=tmp_path / "out")


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
