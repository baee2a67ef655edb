"""GGUF files: what a conversion reads of one before and while it unpacks it."""

from __future__ import annotations

import io
import struct
from typing import Any

import gguf as gguf  # here, so that it is instrumented

from convert.errors import ConvertError
from convert.source.gguf import GgufFile
from convert.source.gguf_tokenizer import tokenizer_files
from tests.fuzz.scratch import folder

ALLOWED = (ConvertError,)
INSTRUMENTED = (
    "convert.source.gguf",
    "convert.source.gguf_tokenizer",
    "convert.source.checkpoint",
    "gguf.gguf_reader",
)
MAX_BYTES = 1 << 14

MOST_PARAMETERS = 1 << 20


def run(data: bytes) -> None:
    path = folder() / "model.gguf"
    path.write_bytes(data)
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
    facts: dict[str, Any] = {
        "general.architecture": family,
        "general.name": "a model",
        f"{family}.context_length": 64,
        f"{family}.embedding_length": hidden,
        f"{family}.feed_forward_length": inner,
        f"{family}.block_count": 1,
        f"{family}.attention.head_count": heads,
        f"{family}.attention.head_count_kv": 1,
        f"{family}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{family}.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1, 1, 1, 3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.chat_template": "{{ messages }}",
    }
    kv = hidden // heads
    shapes = {
        "token_embd": (hidden, len(tokens)),
        "output_norm": (hidden,),
        "blk.0.attn_norm": (hidden,),
        "blk.0.ffn_norm": (hidden,),
        "blk.0.attn_q": (hidden, hidden),
        "blk.0.attn_k": (hidden, kv),
        "blk.0.attn_v": (hidden, kv),
        "blk.0.attn_output": (hidden, hidden),
        "blk.0.ffn_gate": (hidden, inner),
        "blk.0.ffn_up": (hidden, inner),
        "blk.0.ffn_down": (inner, hidden),
    }
    tensors = {f"{name}.weight": shape for name, shape in shapes.items()}
    if biases:
        tensors |= {
            f"blk.0.attn_{part}.bias": (width,) for part, width in (("q", hidden), ("k", kv), ("v", kv))
        }
    if factors:
        tensors["rope_freqs.weight"] = (kv // 2,)
    out = io.BytesIO(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts)))
    out.seek(0, io.SEEK_END)
    for name, value in facts.items():
        out.write(_text(name) + _value(value))
    at = 0
    for name, shape in tensors.items():
        out.write(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at))
        size = 4
        for each in shape:
            size *= each
        at += -(-size // 32) * 32
    out.write(bytes(-out.tell() % 32))
    return out.getvalue() + struct.pack("<f", 1.0) * (at // 4)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: Any) -> bytes:
    """A value with its type: of whole numbers uint32."""
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 5
        items = b"".join(_text(each) if kind == 8 else struct.pack("<i", each) for each in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + items
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
