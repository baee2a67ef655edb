"""Checkpoints from GGUF files: tensors, configuration, tokenizer, and the errors of files that do not fit."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="reading GGUF files needs the gguf package")

import gguf

import convert
from convert.errors import ArchitectureError, OptionError, SourceError
from convert.source.checkpoint import Checkpoint
from convert.source.gguf import GgufFile, unpack_gguf
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import GgufError
from edge_runtime.text.gguf import RULES, tokenizer_files
from edge_runtime.text.tokenizer import Tokenizer
from lab.benches.write_gguf import write_gguf
from payload import Contract
from tests.checkpoints import write_tiny_decoder

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
MODELS: dict[str, dict[str, Any]] = {
    "Llama": {"family": "Llama", "kv_heads": 1},
    "Llama, untied and scaled": {"family": "Llama", "tied": False, "rope_scaling": LLAMA3},
    "Qwen2": {"family": "Qwen2"},
    "Qwen3": {"family": "Qwen3", "head_dim": 32},
    "Gemma 3": {"family": "Gemma3", "layers": 7, "head_dim": 32, "sliding_window": 9}
    | {"query_pre_attn_scalar": 32},
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint folder, and the same as a GGUF file in float32."""
    folder = write_tiny_decoder(tmp_path_factory.mktemp("llama") / "source", "Llama", kv_heads=2)
    path = folder.with_name("llama.gguf")
    write_gguf(folder, path, "f32", "f32")
    return folder, path


@pytest.mark.parametrize("model", MODELS)
def test_what_was_written_is_read_back(model: str, tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "source", **MODELS[model])
    path = tmp_path / "model.gguf"
    write_gguf(folder, path, "f32", "f32")
    written = 0

    def count(parameters: int) -> None:
        nonlocal written
        written += parameters

    unpack_gguf(GgufFile(path), tmp_path / "unpacked", progress=count)
    before, after = Checkpoint(folder), Checkpoint(tmp_path / "unpacked")
    assert after.shape == before.shape
    assert written == before.shape.parameters
    for name in before.shape.tensor_shapes():
        rounded = 1e-6 if before.shape.kind.gemma and name.endswith("norm.weight") else 0  # 1 + weight
        np.testing.assert_allclose(after.tensor(name), before.tensor(name), rounded, rounded, err_msg=name)
    files = [place / "tokenizer.json" for place in (folder, tmp_path / "unpacked")]
    text = "He sold 24 loaves at 3.75 in 2019.\n\n  The river's end – 日本語 🎈<|im_start|>user\n1<|im_end|>"
    ids = [Tokenizer.from_file(file).encode(text) for file in files]
    assert ids[0] == ids[1]
    contracts = [Contract.of(json.loads(file.read_text()), {}) for file in files]
    assert contracts[0] == contracts[1]


def test_transformers_reads_the_same_weights(llama: tuple[Path, Path], tmp_path: Path) -> None:
    """Its own reader of GGUF files, a second implementation of names and order."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    folder, path = llama
    model = LlamaForCausalLM(LlamaConfig(**json.loads((folder / "config.json").read_text())))
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    file = GgufFile(path)
    for name in file.shape.tensor_shapes():
        np.testing.assert_array_equal(file.tensor(name), theirs[name].numpy(), err_msg=name)


def test_a_file_becomes_a_bundle(llama: tuple[Path, Path], tmp_path: Path) -> None:
    folder, path = llama
    out = tmp_path / "bundle"
    manifest = convert.convert(
        path, out, variants=["fp32", "int8"], thresholds={"int8": convert.Thresholds()}, threads=1
    )
    assert manifest.model.architecture == "LlamaForCausalLM"
    assert manifest.model.id == "source"
    assert manifest.variants["fp32"].verification["max_delta"] < 1e-4
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    bundle = Bundle.open(out)
    ids = bundle.form.ids("Which river?")
    assert np.isfinite(OrtEngine.open(bundle, threads=1).append(ids, [0])).all()
    # The same bundle as from the folder itself, but for where it says it comes from.
    again = convert.convert(folder, tmp_path / "again", variants=["fp32"], threads=1)
    assert again.contract == manifest.contract
    assert again.variants["fp32"].files == manifest.variants["fp32"].files


def test_a_tokenizer_from_a_folder(llama: tuple[Path, Path], tmp_path: Path) -> None:
    folder, path = llama
    unpack_gguf(GgufFile(path), tmp_path / "unpacked", folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "unpacked" / name).read_bytes() == (folder / name).read_bytes()
    with pytest.raises(SourceError):
        unpack_gguf(GgufFile(path), tmp_path / "other", tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, -2000])
def test_a_truncated_file(keep: int, llama: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(llama[1].read_bytes()[:keep])
    with pytest.raises(SourceError):
        GgufFile(path)


def test_an_array_longer_than_the_file_is_not_made(tmp_path: Path) -> None:
    """The library makes an empty value for each of its items: of 2^60, until the memory ends."""
    path = tmp_path / "long.gguf"
    name = b"tokenizer.ggml.tokens"
    facts = struct.pack(f"<Q{len(name)}sIIQ", len(name), name, 9, 4, 1 << 60)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + facts)
    with pytest.raises(SourceError):
        GgufFile(path)


def test_a_text_that_is_not_utf_8(llama: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(llama[1].read_bytes().replace(b"gpt2", b"gpt\x94", 1))
    with pytest.raises(SourceError):
        GgufFile(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        convert.convert(tmp_path / "none.gguf", tmp_path / "out")
    with pytest.raises(OptionError):
        convert.convert(tmp_path / "none.gguf", tmp_path / "out", revision="main")
    with pytest.raises(OptionError):
        convert.convert(tmp_path, tmp_path / "out", tokenizer=tmp_path)


LAYER = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down".split()


def _file(path: Path, architecture: str, extra: str | None = None, heads: int = 2, layers: int = 1) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(64)
    writer.add_head_count(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, shape in (
        ("token_embd", (40, 32)),
        ("output_norm", (32,)),
        *((f"blk.0.{name}", (2,)) for name in LAYER),
        *(((extra, (2,)),) if extra else ()),
    ):
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("sizes", [{"heads": 0}, {"layers": 2**31 - 1}, {"layers": 0}])
def test_sizes_that_no_model_has_are_refused_before_any_work(sizes: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        GgufFile(_file(tmp_path / "odd.gguf", "llama", **sizes))


def test_another_architecture_and_a_tensor_that_no_graph_has(tmp_path: Path) -> None:
    for number, made in enumerate((("gemma",), ("llama", "blk.0.attn_sinks"), ("llama", "rope_freqs"))):
        with pytest.raises(ArchitectureError):
            GgufFile(_file(tmp_path / f"{number}.gguf", *made))
    file = GgufFile(_file(tmp_path / "good.gguf", "llama"))
    assert file.shape.rms_norm_eps == 1e-5
    with pytest.raises(SourceError):
        unpack_gguf(file, tmp_path / "unpacked")


def _vocabulary(split: str) -> Tokenizer:
    """The 256 bytes after three special tokens, with a few merges of digits and letters."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["1 2", "12 3", "a b", "Ġ a"]
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokens = [*special, *alphabet, "12", "123", "ab", "Ġa", "<unused>", "<user>"]
    types = [3, 3, 3, *[1] * (len(alphabet) + 4), 5, 4]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
    }
    return Tokenizer.from_json(json.dumps(tokenizer_files(metadata, "here")["tokenizer.json"]))


@pytest.mark.parametrize(
    ("split", "numbers"),
    [
        ("smollm", ["1", "2", "3"]),
        ("qwen2", ["1", "2", "3"]),
        ("llama-bpe", ["123"]),
        ("gpt-2", ["123"]),
        ("bailingmoe", ["1", "2", "3"]),
    ],
)
def test_numbers_are_split_as_the_vocabulary_was_made_for(split: str, numbers: list[str]) -> None:
    tokenizer = _vocabulary(split)
    assert split in RULES
    assert [tokenizer.decode([id_]) for id_ in tokenizer.encode("123")] == numbers
    ids = tokenizer.encode("<|im_start|>ab ab<user>\n– 日<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.decode(ids) == "ab ab<user>\n– 日"


def test_lladas_way_to_split_text_is_qwens() -> None:
    from tokenizers import Regex, pre_tokenizers

    own = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    own += r"|\s*[\r\n]|\s+(?!\S)|\s+"
    (ours,) = RULES["bailingmoe"].expressions
    first, second = (pre_tokenizers.Split(Regex(each), "isolated") for each in (own, ours))
    draw = random.Random(0)
    for _ in range(3000):
        text = "".join(
            draw.choices("ab'sStTrReEvV dDmMlL12\n\r\t  !.\u00e9\u4e2d\u0301", k=draw.randrange(24))
        )
        assert first.pre_tokenize_str(text) == second.pre_tokenize_str(text)


GEMMA = "Hello  w\u00f6rld\n\n  a \u2581 \U0001f388<table>x"


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """Special tokens, a user's symbols, every byte, and words with scores, as in Gemma's file."""
    letters = sorted({*GEMMA, "\u2581", "_", "u", "s", "e"} - {" ", "\n", "\U0001f388"})
    words = ["\u2581a", "ll", "ell", "Hell", "Hello", "\u2581w", "us"]
    tokens = ["<bos>", "<end>", "\n", "\n\n", "\u2581\u2581", "<table>"]
    types = [3, 3, 4, 4, 4, 4, *[6] * 256, *[1] * (len(letters) + len(words))]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)] + letters + words
    scores = [0.0] * (len(tokens) - len(words)) + [-float(rank) for rank in range(len(words))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_space_prefix": False,
        **changes,
    }


def test_a_sentencepiece_vocabulary() -> None:
    data = tokenizer_files(sentencepiece(), "here")["tokenizer.json"]
    tokenizer = Tokenizer.from_json(json.dumps(data))
    ids = tokenizer.encode(GEMMA)
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == GEMMA.replace("\u2581", " ")
    words = [tokenizer.token_bytes(id_).decode(errors="replace") for id_ in ids]
    assert words[:3] == ["Hello", "  ", "w"]
    assert {"\n\n", "<table>"} <= set(words)
    assert tokenizer.encode_pieces([(GEMMA[:9], False), (GEMMA[9:], True)]) == ids
    named = tokenizer.encode_pieces([("<bos>", False), ("us<end>  ", True), ("<end>", False)])
    assert (named.count(0), named.count(1)) == (1, 1)
    for text in (GEMMA, " a", "\u2581", "<bos><0x0A>"):
        raw = text.encode() + b"\xff"
        assert b"".join(map(tokenizer.token_bytes, tokenizer.encode_bytes(raw))) == raw
    template = {"assistant": ["<bos>", "<end>\n"], "generation": "<bos>"}
    contract = Contract.of(data, template)
    assert contract.special == {"<bos>": 0, "<end>": 1}
    assert contract.eos_ids == {1}
    assert all(contract.is_ordinary(id_) for id_ in ids)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.ggml.add_space_prefix": True},
        {"tokenizer.ggml.scores": [0.0]},
        {"tokenizer.ggml.token_type": [1] * 500},
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "chatglm"},
    ],
)
def test_a_vocabulary_that_is_not_read(changes: dict[str, Any]) -> None:
    with pytest.raises(GgufError):
        tokenizer_files(sentencepiece(**changes), "here")


BLOCKED = """
import sys
sys.modules |= dict.fromkeys(("torch", "transformers", "optimum", "huggingface_hub"))
from pathlib import Path
import convert
model, out, threads = sys.argv[1:]
convert.convert(model, Path(out), thresholds={"int8": convert.Thresholds()}, threads=int(threads))
"""
"""A conversion where these packages cannot be imported."""


def test_a_file_becomes_the_same_bundle_anywhere_without_pytorch(
    llama: tuple[Path, Path], tmp_path: Path
) -> None:
    """With another number of threads, another order of sets, and NumPy's plain loops."""
    manifests = []
    for number, threads in enumerate((1, 2)):
        out = tmp_path / str(number)
        plain = {"PYTHONHASHSEED": str(number), "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512_SKX" * number}
        command = [sys.executable, "-W", "ignore", "-c", BLOCKED, str(llama[1]), str(out), str(threads)]
        subprocess.run(command, env=os.environ | plain, check=True)
        manifests.append(Bundle.open(out).manifest)
    here = convert.convert(
        llama[1], tmp_path / "here", variants=["int8"], thresholds={"int8": convert.Thresholds()}
    )
    first, second = manifests
    assert first.contract == second.contract == here.contract
    for variant in first.variants:
        assert first.fingerprint(variant) == second.fingerprint(variant)
    assert here.fingerprint("int8") == first.fingerprint("int8")
    assert first.variants["fp32"].verification["max_delta"] < 1e-4


def test_a_calibrated_variant_is_refused_where_pytorch_is_not(
    llama: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OptionError, match="int4"):
        convert.convert(llama[1], tmp_path / "out", variants=["int4"])
