"""The decoder architectures that the graphs are written for.

Responsible for what distinguishes one such architecture from another. Not responsible for the sizes and
constants of a checkpoint (see `checkpoint`) or for the graph (see `graph.decoder`).
"""

from __future__ import annotations

from dataclasses import dataclass


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
