"""Diffusion models in GGUF files: parity with the checkpoint, the contract, and files that do not fit.

What needs llama.cpp is skipped where it is not installed; which rows of its logits are taken, and that
sequences are kept apart, is tested with a stand-in too.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gguf", reason="writing GGUF files needs the gguf package")

from cloud_anchor.anchor import main as anchor
from cloud_anchor.errors import CheckpointError, MemoryLackError, RequestError
from cloud_anchor.model import gguf
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.gguf import Facts, GgufModel
from cloud_anchor.model.prompt_form import checkpoint_form
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.shipped import PAIRS
from edge_runtime.errors import EngineError, GgufError
from edge_runtime.fill import main as fill
from edge_runtime.text.gguf import WHOLE_TOKENIZER, read_metadata
from lab.benches.write_gguf import write_diffusion, write_gguf
from payload import Contract
from tests.checkpoints import write_tiny_qwen
from tests.cloud_anchor.cloud_checkpoints import make_dream, make_llada

MAKERS: dict[str, Callable[[Path], Path]] = {"Dream": make_dream, "LLaDA": make_llada}
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9], [3], [2, 3, 8, 4, 6]]
CANVAS = 12

Made = Callable[[str], tuple[Path, Path]]


@pytest.fixture
def llama() -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (extra gguf)")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """made(family): a random checkpoint, and the same as a file in float32."""
    found: dict[str, tuple[Path, Path]] = {}

    def make(family: str) -> tuple[Path, Path]:
        if family not in found:
            folder = MAKERS[family](tmp_path_factory.mktemp("gguf") / family)
            write_diffusion(folder, folder.with_suffix(".gguf"), "f32")
            found[family] = folder, folder.with_suffix(".gguf")
        return found[family]

    return make


def opened(path: Path) -> GgufModel:
    model = load_model(str(path))
    assert isinstance(model, GgufModel)
    return model


def logits_of(model: MaskedModel, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Of every second position, from canvases that differ and are partly written."""
    batch = model.batch(prompts, CANVAS)
    canvas = torch.full((len(prompts), CANVAS), model.mask_id)
    for row in range(len(prompts)):
        canvas[row, row :: len(prompts) + 1] = 7 + row
    wanted = torch.zeros_like(canvas, dtype=torch.bool)
    wanted[:, ::2] = True
    return model.logits(batch, canvas, wanted).float()


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize("most", [gguf.MOST_POSITIONS, 1, 40], ids=["at once", "one by one", "in parts"])
@pytest.mark.parametrize("rows", [[0], [0, 4], [1, 2], [0, 1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("family", MAKERS)
def test_logits_are_those_of_the_checkpoint(
    family: str, rows: list[int], most: int, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one length (0 and 4) are not padded, others are."""
    monkeypatch.setattr(gguf, "MOST_POSITIONS", most)
    folder, path = made(family)
    prompts = [PROMPTS[row] for row in rows]
    reference = load_model(str(folder), device="cpu", dtype="float32")
    assert isinstance(reference, MaskedModel)
    ours, theirs = logits_of(opened(path), prompts), logits_of(reference, prompts)
    torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=1e-3)
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() > 0.99
    divergence = torch.nn.functional.kl_div(ours.log_softmax(-1), theirs.softmax(-1), reduction="batchmean")
    assert divergence < 1e-6


class StandIn:
    """The part of llama_cpp that a model calls: the logits of a token tell its id, its place, and what it
    sees, the sum of its sequence's ids.
    """

    LLAMA_FLASH_ATTN_TYPE_DISABLED = 0

    def __init__(self, rows: int) -> None:
        self.rows, self.passes, self.contexts = rows, list[list[int]](), list[int]()
        self.ids = self.positions = 0

    def __getattr__(self, name: str) -> Callable[..., object]:
        numbers = {"llama_vocab_n_tokens": self.rows, "llama_model_n_ctx_train": 64, "llama_encode": 0}
        return lambda *_: numbers.get(name)

    def llama_context_default_params(self) -> SimpleNamespace:
        return SimpleNamespace()

    def llama_init_from_model(self, _: object, options: SimpleNamespace) -> int:
        assert options.n_ctx == options.n_batch == options.n_ubatch >= options.n_seq_max
        self.contexts.append(options.n_ubatch)
        return len(self.contexts)

    def llama_batch_init(self, count: int, *_: int) -> SimpleNamespace:
        columns = {name: [0] * count for name in ("token", "pos", "n_seq_id", "logits")}
        return SimpleNamespace(**columns, n_tokens=0, seq_id=[[0] for _ in range(count)])

    def llama_encode(self, _: object, batch: SimpleNamespace) -> int:
        sequences = [ids[0] for ids in batch.seq_id]
        seen: dict[int, int] = {}
        for sequence, id_ in zip(sequences, batch.token, strict=True):
            seen[sequence] = seen.get(sequence, 0) + id_
        self.passes.append(sequences)
        rows = zip(batch.token, batch.pos, [seen[each] for each in sequences], strict=True)
        self.found = np.array([[*row, *[0] * (self.rows - 3)] for row in rows], np.float32)
        return 0

    def llama_get_logits(self, _: object) -> Any:
        return self.found.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


FACTS: dict[str, Any] = {
    "general.architecture": "dream",
    "tokenizer.ggml.tokens": [str(id_) for id_ in range(40)],
    "tokenizer.ggml.mask_token_id": 39,
    "tokenizer.ggml.eos_token_id": 38,
}


@pytest.mark.parametrize("most", [1024, 1, 34])
@pytest.mark.parametrize("shifted", [True, False])
def test_each_row_is_a_sequence_and_each_position_has_its_own_logits(
    shifted: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama = StandIn(40)
    monkeypatch.setattr(gguf, "quiet_library", lambda: llama)
    monkeypatch.setattr(gguf, "MOST_POSITIONS", most)
    model = GgufModel(1, Facts.of(FACTS | {"diffusion.shift_logits": shifted}, "here"), "here")
    batch = model.batch(PROMPTS, CANVAS)
    canvas = torch.arange(CANVAS).repeat(len(PROMPTS), 1) + torch.arange(len(PROMPTS))[:, None]
    wanted = (canvas % 3 == 0) & (torch.arange(len(PROMPTS))[:, None] != 2)  # none of one row
    found = model.logits(batch, canvas, wanted)
    expected = []
    for row, column in wanted.nonzero().tolist():
        ids = [*PROMPTS[row], *canvas[row].tolist()]
        place = len(PROMPTS[row]) + column - shifted
        expected.append([ids[place], place, sum(ids)])
    assert found[:, :3].tolist() == expected
    sizes = max(1, min(5, most // (7 + CANVAS)))
    assert all(len(set(sequences)) <= sizes for sequences in llama.passes)
    assert llama.contexts == sorted(set(llama.contexts))  # a larger one only
    model.logits(batch, canvas, wanted)
    assert llama.contexts == sorted(set(llama.contexts))


@pytest.mark.parametrize(
    "changes",
    [
        {"general.architecture": "qwen2"},
        {"general.architecture": "rnd1"},
        {"general.architecture": None},
        {"tokenizer.ggml.mask_token_id": None},
        {"tokenizer.ggml.mask_token_id": 40},
        {"tokenizer.ggml.eos_token_id": -1},
        {"tokenizer.ggml.eos_token_id": None},
        {"tokenizer.ggml.tokens": None},
    ],
    ids=str,
)
def test_a_model_of_another_kind_or_without_its_ids(changes: dict[str, Any]) -> None:
    facts = {name: value for name, value in (FACTS | changes).items() if value is not None}
    with pytest.raises(CheckpointError):
        Facts.of(facts, "here")


def test_what_a_file_does_not_say_is_the_familys() -> None:
    known = Facts.of(FACTS, "here")
    assert (known.shifted, known.plan, known.commit, known.eos_ids) == (True, None, None, {38})
    tokens = {"tokenizer.ggml.tokens": ["x"] * 126_400, "general.architecture": "llada"}
    llada = Facts.of({**{k: v for k, v in FACTS.items() if "mask" not in k}, **tokens}, "here")
    assert (llada.shifted, llada.mask_id) == (False, 126_336)


def test_the_library_is_not_installed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    gguf.quiet_library.cache_clear()
    with pytest.raises(EngineError):
        load_model(str(made("Dream")[1]))


def test_memory_is_estimated_without_the_weights(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "available_memory", lambda: 1 << 28)
    with pytest.raises(MemoryLackError) as error:
        load_model(str(made("Dream")[1]))
    assert "--dtype" not in str(error.value)


def test_a_number_format_is_for_checkpoints(made: Made) -> None:
    with pytest.raises(RequestError):
        load_model(str(made("Dream")[1]), dtype="bfloat16")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        load_model(str(tmp_path / "none.gguf"))


def test_an_autoregressive_model(tmp_path: Path) -> None:
    write_gguf(write_tiny_qwen(tmp_path / "qwen"), tmp_path / "qwen.gguf", "f32", "f32")
    with pytest.raises(CheckpointError):
        load_model(str(tmp_path / "qwen.gguf"))


@pytest.mark.parametrize("keep", [0, 3, 20, 100, 5000])
def test_a_truncated_file(keep: int, made: Made, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(made("Dream")[1].read_bytes()[:keep])
    with pytest.raises(GgufError):
        load_model(str(tmp_path / "cut.gguf"))


@pytest.mark.usefixtures("llama")
def test_a_file_without_all_of_its_weights_or_with_too_few_rows(made: Made, tmp_path: Path) -> None:
    data = made("Dream")[1].read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[:-2000])
    rows = b"token_embd.weight\x02\x00\x00\x00"
    at = data.index(rows) + len(rows) + 8
    fewer = (int.from_bytes(data[at : at + 8], "little") - 1).to_bytes(8, "little")
    (tmp_path / "few.gguf").write_bytes(data[:at] + fewer + data[at + 8 :])
    for name in ("cut", "few"):
        with pytest.raises(CheckpointError):
            load_model(str(tmp_path / f"{name}.gguf"))


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize("device", ["cuda", "20", "tpu", "²"])
def test_a_gpu_needs_a_build_for_one(device: str, made: Made) -> None:
    import llama_cpp

    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this build has a GPU backend")
    with pytest.raises(RequestError):
        load_model(str(made("Dream")[1]), device=device)
    assert isinstance(load_model(str(made("Dream")[1]), device="cpu"), GgufModel)


@pytest.mark.parametrize("family", MAKERS)
def test_the_contract_is_the_checkpoints(family: str, made: Made) -> None:
    """Of the tokens and merges in the file, as other converters write it."""
    folder, path = made(family)
    assert WHOLE_TOKENIZER not in read_metadata(path)
    assert checkpoint_form(path).contract == checkpoint_form(folder).contract
    text = "He sold 24 loaves at 3.75 in 2019.\n\n  The river's end"
    assert checkpoint_form(path).ids(text) == checkpoint_form(folder).ids(text)


def test_a_tokenizer_without_a_name_is_in_the_file_whole(tmp_path: Path) -> None:
    pair, path = PAIRS["testbed"], tmp_path / "testbed.gguf"
    write_diffusion(pair.checkpoint, path, "f32")
    data = json.loads((pair.checkpoint / "tokenizer.json").read_text())
    assert json.loads(read_metadata(path)[WHOLE_TOKENIZER]) == data
    template = checkpoint_form(pair.checkpoint).template.to_json()
    assert checkpoint_form(path).contract == Contract.of(data, template)


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize("weights", ["f32", "q8_0"])
def test_a_device_fills_what_the_trained_model_sent(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file's payload, read by the checkpoint's bundle; in float32 it has the bytes of the checkpoint's."""
    pair, path = PAIRS["testbed"], tmp_path / "testbed.gguf"
    write_diffusion(pair.checkpoint, path, weights)
    question = ["--prompt", "How old are the people of Ecuador?", "--edge", str(pair.bundle)]
    for model, name in ((str(path), "ours.bin"), ("testbed", "theirs.bin")):
        assert anchor(["--model", model, *question, "-o", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert fill([str(tmp_path / "ours.bin"), *question]) == 0
    assert "Ecuador" in capsys.readouterr().out
    if weights == "f32":
        assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "theirs.bin").read_bytes()


@pytest.mark.usefixtures("llama")
def test_a_bundle_of_another_vocabulary_is_translated_to(
    made: Made, other_edge_bundle: Path, tmp_path: Path
) -> None:
    plan = "--canvas 32 --total-steps 32 --steps 8 --threshold 0".split()
    command = ["--model", str(made("LLaDA")[1]), "--edge", str(other_edge_bundle), "--prompt", "Hello"]
    assert anchor([*command, *plan, "-o", str(tmp_path / "payload.bin")]) == 0
