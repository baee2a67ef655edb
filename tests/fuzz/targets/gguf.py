"""GGUF files: what a conversion reads of one before and while it unpacks it."""

from __future__ import annotations

import gguf as gguf  # here, so that it is instrumented
import numpy as np

from convert.errors import ConvertError
from convert.source.gguf import GgufFile
from edge_runtime.errors import GgufError
from edge_runtime.text.gguf import read_metadata, tokenizer_files
from tests.fuzz.scratch import folder

ALLOWED = (ConvertError, GgufError)
INSTRUMENTED = (
    "convert.source.gguf",
    "edge_runtime.text.gguf",
    "convert.source.checkpoint",
    "gguf.gguf_reader",
)
MAX_BYTES = 1 << 14


def run(data: bytes) -> None:
    path = folder() / "model.gguf"
    path.write_bytes(data)
    tokenizer_files(read_metadata(path), str(path))
    file = GgufFile(path)
    tokenizer_files(file.metadata, str(path))
    for name in file.shape.tensor_shapes():
        file.tensor(name)


def seeds() -> list[bytes]:
    """A Llama and a Qwen2 of one layer, as small as they can be."""
    return [
        _file("llama", biases=False),
        _file("qwen2", biases=True),
        _file("llama", biases=False, factors=True),
    ]


def _file(family: str, *, biases: bool, factors: bool = False) -> bytes:
    hidden, heads, inner, tokens = 32, 2, 8, ["a", "b", "ab", "<|endoftext|>"]
    kv, path = hidden // heads, folder() / "seed.gguf"
    writer = gguf.GGUFWriter(path, family)
    writer.add_name("a model")
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_block_count(1)
    writer.add_head_count(heads)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1, 1, 1, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(3)
    writer.add_chat_template("{{ messages }}")
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(tokens), hidden),
        "output_norm.weight": (hidden,),
        "blk.0.attn_norm.weight": (hidden,),
        "blk.0.ffn_norm.weight": (hidden,),
        "blk.0.attn_q.weight": (hidden, hidden),
        "blk.0.attn_k.weight": (kv, hidden),
        "blk.0.attn_v.weight": (kv, hidden),
        "blk.0.attn_output.weight": (hidden, hidden),
        "blk.0.ffn_gate.weight": (inner, hidden),
        "blk.0.ffn_up.weight": (inner, hidden),
        "blk.0.ffn_down.weight": (hidden, inner),
    }
    if biases:
        shapes |= {
            f"blk.0.attn_{part}.bias": (width,) for part, width in (("q", hidden), ("k", kv), ("v", kv))
        }
    if factors:
        shapes["rope_freqs.weight"] = (kv // 2,)
    for name, shape in shapes.items():
        writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()
