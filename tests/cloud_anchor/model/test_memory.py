"""Memory: the estimate, the number format that follows from it, and weights that are held once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cloud_anchor.anchor import main
from cloud_anchor.errors import MemoryLackError
from cloud_anchor.model import checkpoint, memory
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.families import DREAM_7B, Shape
from cloud_anchor.model.memory import MemoryNeeds, choose_format
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


def needs(shape: Shape, dtype: torch.dtype, answers: int = 1, canvas: int = 256) -> MemoryNeeds:
    return MemoryNeeds.of(shape.sizes, dtype, answers, canvas)


@pytest.mark.parametrize(
    ("shape", "processor", "free", "kind"),
    [
        (DREAM_7B, PLAIN, 64, torch.float32),
        (DREAM_7B, PLAIN, None, torch.float32),
        (DREAM_7B, NEW, 64, torch.bfloat16),  # computed in hardware
        (DREAM_7B, PLAIN, 20, torch.bfloat16),  # all that fits
        (DREAM_7B, PLAIN, 8, torch.float32),  # neither fits: the error is the same for both
        (SMALL, NEW, 64, torch.float32),
    ],
)
def test_the_default_format(shape: Shape, processor: Processor, free: int | None, kind: torch.dtype) -> None:
    found, reason = choose_format(partial(needs, shape), free and free * GIB, processor)
    assert found == kind
    assert (reason is None) == (kind == torch.float32)


def test_an_estimate_names_what_is_missing() -> None:
    fits, wide = needs(DREAM_7B, torch.bfloat16), needs(DREAM_7B, torch.float32)
    fits.check("Dream", 18 * GIB)
    assert 15 * GIB < fits.total < 18 * GIB
    for short, free, remedy in (
        (wide, 18, "--dtype bfloat16"),
        (needs(DREAM_7B, torch.bfloat16, 32, 512), 18, "smaller batch or canvas"),
        (fits, 4, "a GPU"),
    ):
        with pytest.raises(MemoryLackError, match=rf"{free}\.0 GiB.*{remedy}"):
            short.check("Dream", free * GIB)
    assert replace(fits, beside=3 * GIB).total == fits.total + 3 * GIB
    wide.check("nobody knows", None)


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    dream_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the model was built")

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
    monkeypatch.setattr(memory, "choose_format", lambda *_: (torch.bfloat16, "for a reason"))
    report = Recorded()
    assert load_model(str(dream_folder), device="cpu", progress=report).net.dtype == torch.bfloat16
    assert report.said == ["bfloat16, for a reason"]
    report = Recorded()
    load_model(str(dream_folder), device="cpu", dtype="float32", progress=report)
    assert report.said == []
