"""python -m lab.benches.write_gguf CHECKPOINT OUT.gguf: a checkpoint in the format of llama.cpp.

For the benchmark, so that llama.cpp runs the same weights:
`python -m edge_runtime.bench BUNDLE --vs llama.cpp:OUT.gguf`. The `gguf` package quantises the
matrices. With `--head q8_0` the tied embedding and head keep 8 bits, as llama.cpp's own quantiser leaves them
at this width; by default they have 4 bits too, as in an int4 bundle, which is faster.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
)
from gguf.quants import quantize

from common.cli import CommandParser, run_command
from convert.source.checkpoint import Checkpoint, DecoderShape, FloatArray
from convert.source.rotary import frequencies

TYPES = {
    "q4_0": GGMLQuantizationType.Q4_0,
    "q8_0": GGMLQuantizationType.Q8_0,
    "f32": GGMLQuantizationType.F32,
}
FILE_TYPES = {
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "f32": LlamaFileType.ALL_F32,
}


def write_gguf(folder: Path, out: Path, weights: str, head: str) -> None:
    """Write a checkpoint folder (with tokenizer.json) as a GGUF file.

    weights, head: names of `TYPES`, for the layers' matrices and for the tied embedding and head. Raises
    SourceError where the checkpoint cannot be read.
    """
    checkpoint = Checkpoint(folder)
    shape = checkpoint.shape
    writer = GGUFWriter(out, shape.kind.gguf)
    writer.add_name(folder.name)
    writer.add_file_type(FILE_TYPES[weights])
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    if shape.window is not None:
        writer.add_sliding_window(shape.window.size)
    _add_vocabulary(writer, json.loads((folder / "tokenizer.json").read_bytes()), shape.vocab_size)
    settings = folder / "tokenizer_config.json"
    if settings.is_file():
        template = json.loads(settings.read_text(encoding="utf-8")).get("chat_template")
        if template:
            writer.add_chat_template(template)
    if shape.rope_scaling is not None:
        plain = frequencies(dataclasses.replace(shape, rope_scaling=None))
        writer.add_tensor("rope_freqs.weight", shape.rope_scaling.divisors(plain))
    names = get_tensor_name_map(MODEL_ARCH[shape.kind.gguf.upper()], shape.num_hidden_layers)
    for name in shape.tensor_shapes():
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        value = _permuted(checkpoint.tensor(name), shape, name)
        if value.ndim == 1:
            if shape.kind.gemma:
                value = value + np.float32(1)  # all of them are norms
            writer.add_tensor(target, value)
            continue
        kind = TYPES[head if name in ("model.embed_tokens.weight", "lm_head.weight") else weights]
        writer.add_tensor(target, quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _permuted(weight: FloatArray, shape: DecoderShape, name: str) -> FloatArray:
    """A tensor of this name with its rows in llama.cpp's order."""
    part = name.removesuffix(".weight").rpartition(".")[2]
    if shape.kind.gguf != "llama" or part not in ("q_proj", "k_proj"):
        return weight
    heads = shape.num_attention_heads if part == "q_proj" else shape.num_key_value_heads
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _add_vocabulary(writer: GGUFWriter, tokenizer: dict[str, object], rows: int) -> None:
    model = tokenizer["model"]
    assert isinstance(model, dict)
    added = tokenizer["added_tokens"]
    assert isinstance(added, list)
    tokens = [f"[PAD{i}]" for i in range(rows)]
    types = [TokenType.UNUSED] * rows
    for token, id_ in model["vocab"].items():
        tokens[id_], types[id_] = token, TokenType.NORMAL
    for token in added:
        tokens[token["id"]], types[token["id"]] = token["content"], TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    ends = {token["content"]: token["id"] for token in added}
    writer.add_eos_token_id(ends["<|im_end|>"])
    writer.add_bos_token_id(ends["<|endoftext|>"])


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.write_gguf",
        description=__doc__,
        epilog="example:\n  python -m lab.benches.write_gguf runs/full-size/checkpoint runs/q4_0.gguf",
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", choices=tuple(TYPES), default="q4_0")
    parser.add_argument("--head", choices=tuple(TYPES), default="q4_0", help="the embedding and the head")
    args = parser.parse_args(argv)

    def write() -> None:
        part = args.out.with_name(args.out.name + ".part")
        write_gguf(args.checkpoint, part, args.weights, args.head)
        part.rename(args.out)
        print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")

    return run_command("write_gguf", write)


if __name__ == "__main__":
    sys.exit(main())
