"""The decoder architectures that the graphs are written for, and the error that refuses others.

Responsible for what distinguishes one such architecture from another. Not responsible for the sizes and
constants of a checkpoint (see `checkpoint`) or for the graph (see `graph.decoder`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from convert.errors import ArchitectureError
from payload import Contract, PayloadError


@dataclass(frozen=True)
class Architecture:
    """A decoder with RMS norms, rotary positions, grouped-query attention and a gated MLP.

    qkv_bias: biases in the projections of queries, keys and values.
    qk_norm:  an RMS norm of each query and key head before the rotation.
    gguf:     its name in a GGUF file, and in the configuration of onnxruntime-genai.
    about:    models of this architecture.
    head_dim: of a configuration that does not say it; None for hidden_size over the number of heads.
    gemma:    norms behind attention and MLP too, all with weights stored less 1, an embedding times the root
              of hidden_size, a GELU by tanh in place of a SiLU, and layers that look back no further than a
              window.
    """

    qkv_bias: bool
    qk_norm: bool
    gguf: str
    about: str
    head_dim: int | None = None
    gemma: bool = False


ARCHITECTURES = {
    "Qwen2ForCausalLM": Architecture(True, False, "qwen2", "Qwen2, Qwen2.5"),
    "Qwen3ForCausalLM": Architecture(False, True, "qwen3", "Qwen3", head_dim=128),
    "LlamaForCausalLM": Architecture(False, False, "llama", "Llama 2 and 3, SmolLM2, TinyLlama"),
    "Gemma3ForCausalLM": Architecture(False, True, "gemma3", "Gemma 3 (text)", head_dim=256, gemma=True),
}
"""By the model class that `config.json` names."""

QWEN25_VOCAB_SIZE = 151_643
QWEN25_VOCAB_HASH = "64342ea5b10b184bf254403174c97a34735caaac4c9d4cae7bcba96626612f29"
"""`Contract.vocab_hash` of the tokenizer that Qwen2.5, Qwen3 and Dream share."""


def foreign_architecture(folder: Path, architecture: str) -> ArchitectureError:
    """The error for a checkpoint of another architecture; it says whether the vocabulary would fit."""
    return ArchitectureError(
        f"{folder}: expected architecture {' or '.join(ARCHITECTURES)}, found {architecture}. "
        f"{_vocabulary(folder)} Use a checkpoint such as Qwen/Qwen2.5-0.5B-Instruct, or let optimum write "
        "the graph with --exporter optimum."
    )


_OTHER = "Its vocabulary differs too, so anchors would be other words to it:"


def _vocabulary(folder: Path) -> str:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "It has no tokenizer.json to compare vocabularies with."
    expected = f"Qwen2.5's {QWEN25_VOCAB_SIZE} tokens ({QWEN25_VOCAB_HASH[:8]})"
    try:
        contract = Contract.of(json.loads(path.read_text(encoding="utf-8")), {})
    except PayloadError as error:
        return f"{_OTHER} {error}"
    except (ValueError, KeyError, TypeError):
        return f"Its tokenizer is not byte-level BPE with a vocabulary and merges, unlike {expected}."
    found = f"{contract.vocab_size} tokens ({contract.vocab_hash[:8]})"
    if contract.vocab_hash == QWEN25_VOCAB_HASH:
        return (
            f"Its vocabulary is the same, {found}, so anchors would fit its ids; but its layers are others, "
            "and a payload also needs the same chat template."
        )
    return f"{_OTHER} expected {expected}, found {found}."
