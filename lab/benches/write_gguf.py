"""python -m lab.benches.write_gguf CHECKPOINT OUT.gguf: a checkpoint in the format of llama.cpp.

For the benchmark, so that llama.cpp runs the same weights:
`python -m edge_runtime.bench BUNDLE --vs llama.cpp:OUT.gguf`. The `gguf` package quantises the
matrices. With `--head q8_0` the tied embedding and head keep 8 bits, as llama.cpp's own quantiser leaves them
at this width; by default they have 4 bits too, as in an int4 bundle, which is faster. A checkpoint of Dream
or LLaDA becomes a file that `--model` takes.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gguf import (
    GGML_QUANT_SIZES,
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
)
from gguf.quants import quantize

from cloud_anchor.model.checkpoint import generation_settings, read_json, tensors_of, weight_files
from cloud_anchor.model.families import FAMILIES, Shape, family_of
from cloud_anchor.model.gguf import ARCHITECTURES, CANVAS, COMMIT, STEPS
from cloud_anchor.model.prompt_form import tokenizer_data
from common.cli import option, run_options
from convert.source.checkpoint import Checkpoint, DecoderShape, FloatArray
from convert.source.rotary import frequencies
from edge_runtime.bench.llama_cpp import library
from edge_runtime.errors import EngineError
from edge_runtime.text.gguf import WHOLE_TOKENIZER
from edge_runtime.text.splits import SPLITS

TYPES = {name: GGMLQuantizationType[name.upper()] for name in ("q4_0", "q8_0", "f32")}
FILE_TYPES = {
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "f32": LlamaFileType.ALL_F32,
}


class StoredTensor(NamedTuple):
    """A tensor of a file, by a module's name; value: in float32, or quantised as `kind`."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    value: Callable[[], Any]

    @classmethod
    def of(cls, name: str, value: FloatArray, kind: str) -> StoredTensor:
        """kind: of a matrix."""
        stored = TYPES[kind if value.ndim > 1 else "f32"]
        return cls(name, value.shape, stored, lambda: quantize(value, stored))


def write_gguf(folder: Path, out: Path, weights: str, head: str) -> None:
    """Write a checkpoint folder (with tokenizer.json) as a GGUF file.

    weights, head: names of `TYPES`, for the layers' matrices and for the tied embedding and head. Raises
    SourceError where the checkpoint cannot be read.
    """
    checkpoint = Checkpoint(folder)
    shape = checkpoint.shape
    writer = _begun(out, shape.kind.gguf, folder.name, shape, weights)
    if shape.window is not None:
        writer.add_sliding_window(shape.window.size)
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    ends = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    writer.add_eos_token_id(ends["<|im_end|>"])
    writer.add_bos_token_id(ends["<|endoftext|>"])
    _add_vocabulary(writer, tokenizer, shape.vocab_size, folder)
    tensors = []
    if shape.rope_scaling is not None:
        plain = frequencies(dataclasses.replace(shape, rope_scaling=None))
        tensors.append(StoredTensor.of("rope_freqs.weight", shape.rope_scaling.divisors(plain), "f32"))
    for name in shape.tensor_shapes():
        value = checkpoint.tensor(name)
        if shape.kind.gguf == "llama":
            value = _permuted(value, shape, name)
        if value.ndim == 1 and shape.kind.gemma:
            value = value + np.float32(1)  # all of them are norms
        kind = head if name in ("model.embed_tokens.weight", "lm_head.weight") else weights
        tensors.append(StoredTensor.of(name, value, kind))
    _write(writer, tensors, shape.num_hidden_layers)


def quantise_file(plain: Path, out: Path, kind: str, *, threads: int = 0, pure: bool = False) -> None:
    """Write a float32 file's model at a bit width by its name in llama.cpp (`Q4_K_M`), by its own quantiser.

    threads: 0 for all cores. pure: every matrix has one type. Raises EngineError.
    """
    llama = library()
    options = llama.llama_model_quantize_default_params()
    options.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{kind}")
    options.nthread, options.pure = threads, pure
    if llama.llama_model_quantize(str(plain).encode(), str(out).encode(), ctypes.byref(options)):
        raise EngineError(f"{out}: llama.cpp cannot write {kind} of {plain}.")


def write_diffusion(folder: Path, out: Path, weights: str, inner: int | None = None) -> None:
    """Write a checkpoint folder of Dream or LLaDA as a GGUF file; weights: of all matrices.

    inner: intermediate size to pad to, with zeros, which changes no result: K-quants want multiples of 256.
    Raises CheckpointError.
    """
    settings = read_json(folder / "config.json")
    family = family_of(settings, str(folder))
    shape = family.shape(settings)
    padding = (inner or shape.intermediate_size) - shape.intermediate_size
    tensors = {}
    for path in weight_files(folder):
        for stored, tensor in tensors_of(path, torch.device("cpu")):
            value, name = tensor.float().numpy(), family.rename(stored)
            if family.name == "LLaDA":
                value = _permuted(value, shape, name)
            if name.endswith(("gate_proj.weight", "up_proj.weight")):
                value = np.pad(value, ((0, padding), (0, 0)))
            elif name.endswith("down_proj.weight"):
                value = np.pad(value, ((0, 0), (0, padding)))
            tensors[name] = value

    wide = dataclasses.replace(shape, intermediate_size=shape.intermediate_size + padding)
    write_tensors(folder, out, wide, weights, [StoredTensor.of(*each, weights) for each in tensors.items()])


def write_tensors(
    folder: Path, out: Path, shape: Shape, weights: str, tensors: Iterable[StoredTensor]
) -> None:
    """Write a diffusion model's tensors, one at a time, with the rest of its checkpoint's folder."""
    settings, stated = read_json(folder / "config.json"), generation_settings(folder)
    (kind,) = (ours for ours, theirs in ARCHITECTURES.items() if theirs == settings["model_type"])
    family = FAMILIES[ARCHITECTURES[kind]]
    writer = _begun(out, kind, folder.name, shape, weights)
    writer.add_causal_attention(False)
    writer.add_diffusion_shift_logits(family.shifted)
    writer.add_mask_token_id(settings.get("mask_token_id", family.mask_id))
    writer.add_eos_token_id(settings["eos_token_id"])
    writer.add_pad_token_id(settings["pad_token_id"])
    if "steps" in stated and "max_new_tokens" in stated:
        writer.add_uint32(CANVAS, stated["max_new_tokens"])
        writer.add_uint32(STEPS, stated["steps"])
    if "commit" in stated:
        writer.add_float32(COMMIT, stated["commit"])
    _add_vocabulary(writer, tokenizer_data(folder), shape.vocab_size, folder)
    _write(writer, list(tensors), shape.num_hidden_layers)


def _write(writer: GGUFWriter, tensors: Sequence[StoredTensor], layers: int) -> None:
    names = get_tensor_name_map(MODEL_ARCH[writer.arch.upper()], layers)
    for each in tensors:
        target = names.get_name(each.name, try_suffixes=(".weight", ".bias"))
        assert target is not None, each.name
        block, size = GGML_QUANT_SIZES[each.kind]
        nbytes = int(np.prod(each.shape)) // block * size
        writer.add_tensor_info(target, each.shape, np.dtype(np.float32), nbytes, each.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for each in tensors:
        writer.write_tensor_data(each.value())
    writer.close()


def _begun(out: Path, kind: str, name: str, shape: DecoderShape | Shape, weights: str) -> GGUFWriter:
    """A writer of a file that has a model's sizes so far."""
    head_dim = shape.head_dim or shape.hidden_size // shape.num_attention_heads
    writer = GGUFWriter(out, kind)
    writer.add_name(name)
    writer.add_file_type(FILE_TYPES[weights])
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    return writer


def _permuted(weight: FloatArray, shape: DecoderShape | Shape, name: str) -> FloatArray:
    """A tensor of this name with its rows in llama.cpp's order of a Llama's heads."""
    part = name.removesuffix(".weight").rpartition(".")[2]
    if part not in ("q_proj", "k_proj"):
        return weight
    heads = shape.num_attention_heads if part == "q_proj" else shape.num_key_value_heads
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _add_vocabulary(writer: GGUFWriter, tokenizer: dict[str, object], rows: int, folder: Path) -> None:
    """The tokenizer, and the chat template of the folder; a tokenizer that splits text in a way that
    llama.cpp has no name for is added whole.
    """
    model = tokenizer["model"]
    assert isinstance(model, dict)
    added = tokenizer["added_tokens"]
    assert isinstance(added, list)
    tokens = [f"[PAD{i}]" for i in range(rows)]
    types = [TokenType.UNUSED] * rows
    for token, id_ in model["vocab"].items():
        tokens[id_], types[id_] = token, TokenType.NORMAL
    for token in added:
        kind = TokenType.CONTROL if token.get("special", True) else TokenType.USER_DEFINED
        tokens[token["id"]], types[token["id"]] = token["content"], kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    text = json.dumps(tokenizer, ensure_ascii=False)
    if json.dumps(SPLITS["qwen2"]) not in text:
        writer.add_string(WHOLE_TOKENIZER, text)
    settings = folder / "tokenizer_config.json"
    template = read_json(settings).get("chat_template") if settings.is_file() else None
    if template:
        writer.add_chat_template(template)


@dataclass(frozen=True)
class WriteOptions:
    """A checkpoint in the format of llama.cpp."""

    checkpoint: Path = option(None, "folder to read", flags=("checkpoint",))
    out: Path = option(None, "file to write", flags=("out",))
    weights: str = option("q4_0", "of the layers", choices=tuple(TYPES))
    head: str = option("q4_0", "the embedding and the head", choices=tuple(TYPES))


def write(options: WriteOptions) -> None:
    part = options.out.with_name(options.out.name + ".part")
    kind = read_json(options.checkpoint / "config.json").get("model_type")
    if kind in ARCHITECTURES.values():
        write_diffusion(options.checkpoint, part, options.weights)
    else:
        write_gguf(options.checkpoint, part, options.weights, options.head)
    part.rename(options.out)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


def main(argv: Sequence[str] | None = None) -> int:
    example = "example:\n  python -m lab.benches.write_gguf runs/full-size/checkpoint runs/q4_0.gguf"
    return run_options("lab.benches.write_gguf", write, WriteOptions, argv, example)


if __name__ == "__main__":
    sys.exit(main())
