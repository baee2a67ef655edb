"""Memory: the estimate, the number format that follows from it, and weights that are held once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cloud_anchor.anchor import main
from cloud_anchor.errors import MemoryLackError
from cloud_anchor.model import checkpoint, memory
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.families import DREAM_7B, Shape
from cloud_anchor.model.memory import Load, MemoryNeeds, default_format
from edge_runtime.system import Processor
from tests.cloud_anchor.cloud_checkpoints import make_dream

GIB = 1 << 30
PLAIN = Processor("x86_64", "old", ("VNNI",))
NEW = Processor("x86_64", "new", ("VNNI", "bf16"))
SMALL = replace(DREAM_7B, num_hidden_layers=1, hidden_size=512, intermediate_size=512, num_attention_heads=8)


@pytest.mark.parametrize("shape", [DREAM_7B, replace(SMALL, tie_word_embeddings=True, num_key_value_heads=2)])
def test_the_number_of_weights_is_that_of_the_modules(shape: Shape) -> None:
    net = checkpoint.build_net(shape, torch.device("cpu"), torch.float32)
    assert shape.parameters == sum(value.numel() for value in net.parameters())


@pytest.mark.parametrize(
    ("shape", "processor", "free", "name", "reason"),
    [
        (DREAM_7B, PLAIN, 64, "float32", None),
        (DREAM_7B, PLAIN, None, "float32", None),
        (DREAM_7B, NEW, 64, "bfloat16", "in hardware"),
        (DREAM_7B, PLAIN, 20, "bfloat16", r"float32 needs 3\d\.\d GiB of memory and 20\.0 are free"),
        (DREAM_7B, PLAIN, 8, "float32", None),  # neither fits: the error is the same for both
        (SMALL, NEW, 64, "float32", None),
    ],
)
def test_the_default_format(
    shape: Shape,
    processor: Processor,
    free: int | None,
    name: str,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: free and free * GIB)
    found, said = default_format(shape, Load(1, 256), processor)
    assert found == name
    if reason is None:
        assert said is None
    else:
        assert said is not None
        assert re.search(reason, said)


def test_an_estimate_names_what_is_missing() -> None:
    load = Load(answers=1, canvas=256)
    fits = MemoryNeeds.of(DREAM_7B, torch.bfloat16, load, 18 * GIB)
    fits.check("Dream")
    assert 15 * GIB < fits.total < 18 * GIB
    wide = MemoryNeeds.of(DREAM_7B, torch.float32, load, 18 * GIB)
    with pytest.raises(
        MemoryLackError,
        match=r"Dream: expected 3\d\.\d GiB of available memory \(28\.\d of weights in float32, \d\.\d of "
        r"logits and activations\), found 18\.0 GiB\. Use --dtype bfloat16",
    ):
        wide.check("Dream")
    batch = MemoryNeeds.of(DREAM_7B, torch.bfloat16, Load(32, 512), 18 * GIB)
    with pytest.raises(MemoryLackError, match=r"Use a smaller batch or canvas"):
        batch.check("Dream")
    with pytest.raises(MemoryLackError, match=r"use a larger machine or a GPU"):
        MemoryNeeds.of(DREAM_7B, torch.bfloat16, load, 4 * GIB).check("Dream")
    beside = MemoryNeeds.of(DREAM_7B, torch.bfloat16, replace(load, beside=3 * GIB), 18 * GIB)
    assert beside.total == fits.total + 3 * GIB
    MemoryNeeds.of(DREAM_7B, torch.float32, load, None).check("nobody knows")


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    dream_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the model was built")

    monkeypatch.setattr(checkpoint, "available_memory", lambda: 64 << 20)
    monkeypatch.setattr(memory, "available_memory", lambda: 64 << 20)
    monkeypatch.setattr(checkpoint, "build_net", never)
    command = ["--model", str(dream_folder), "--device", "cpu", "--prompt", "Why?", "-o", str(tmp_path / "p")]
    assert main(command) == 6
    error = capsys.readouterr().err
    assert "GiB of available memory" in error
    assert "Traceback" not in error
    assert not (tmp_path / "p").exists()


class Recorded:
    """A receiver of progress that keeps it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: dict[str, list[int]] = {}

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        steps = self.stages[title] = [total]
        yield steps.append

    def say(self, text: str) -> None:
        self.said.append(text)


def test_weights_in_their_own_format_stay_in_the_files(tmp_path: Path) -> None:
    folder = make_dream(tmp_path / "model", sharded=True)
    files = sorted(folder.glob("model-*.safetensors"))
    assert len(files) > 1
    for path in files:
        save_file({name: value.bfloat16() for name, value in load_file(path).items()}, path)
    report = Recorded()
    model = load_model(str(folder), device="cpu", dtype="bfloat16", progress=report)
    mapped = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""
    for path in files if mapped else ():
        assert str(path) in mapped, "the weights are a copy"
    total, *steps = report.stages[f"loading {len(files)} files"]
    assert 0 < sum(steps) <= total, "progress counts the bytes of the tensors"
    assert len(steps) == sum(len(load_file(path)) for path in files)
    wide = load_model(str(folder), device="cpu", dtype="float32")
    ids = torch.tensor([[5, 4, 3, model.mask_id, model.mask_id]])
    torch.testing.assert_close(model.forward(ids).float(), wide.forward(ids), atol=0.3, rtol=0.05)


def test_the_number_format_is_said_where_it_is_not_float32(
    dream_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "default_format", lambda shape, load: ("bfloat16", "for a reason"))
    report = Recorded()
    assert load_model(str(dream_folder), device="cpu", progress=report).net.dtype == torch.bfloat16
    assert report.said == ["bfloat16, for a reason"]
    report = Recorded()
    load_model(str(dream_folder), device="cpu", dtype="float32", progress=report)
    assert report.said == []
