"""The diffusion language models that run here, and how each one's checkpoint maps onto stock Qwen2 modules.

Responsible for the configuration fields and tensor names of each family. Not responsible for finding or
reading files (see `checkpoint`).

Dream, Dream-Coder and DiffuCoder are Qwen2 with full attention, tensor for tensor. LLaDA is a Llama, which is
Qwen2 without biases in the q, k and v projections: with zero biases the same modules compute the same
numbers. Fast-dLLM v2 is Qwen2 and SDAR Qwen3, both with attention that is causal from block to block. None of
them needs code from its repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.memory import Sizes
from cloud_anchor.sampling.schedules import DREAM, LLADA, Schedule

DIFFUSION_GEMMA = "diffusion_gemma"
"""The model_type of DiffusionGemma, which runs on modules and a sampler of its own."""

Settings = Mapping[str, Any]
"""A parsed config.json."""


def rope_option(theta: float) -> dict[str, Any]:
    """The base of the rotary angles, as an argument of the installed transformers' Qwen2Config."""
    if int(version("transformers").split(".")[0]) >= 5:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}
    return {"rope_theta": theta}


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen2 configuration, by the field names of `transformers.Qwen2Config`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    head_dim: int | None = None  # None: hidden_size / num_attention_heads

    @property
    def parameters(self) -> int:
        """Number of weights; a tied embedding and head count once."""
        hidden, inner = self.hidden_size, self.intermediate_size
        head = self.head_dim or hidden // self.num_attention_heads
        read, kept = head * self.num_attention_heads, head * self.num_key_value_heads
        attention = 2 * hidden * read + read + 2 * (hidden * kept + kept)
        layer = attention + 3 * hidden * inner + 2 * hidden
        tables = self.vocab_size * hidden * (1 if self.tie_word_embeddings else 2)
        return tables + self.num_hidden_layers * layer + hidden

    @property
    def sizes(self) -> Sizes:
        """What its memory is estimated by."""
        return Sizes(self.vocab_size, self.hidden_size, self.intermediate_size, self.parameters)


DREAM_7B = Shape(152_064, 3584, 18_944, 28, 28, 4, 131_072, 1e-6, 1e6, False)
"""Dream-v0-Instruct-7B: Qwen2.5-7B's shape."""


@dataclass(frozen=True)
class Family:
    """A family of diffusion language models: its architecture, and the mapping of its checkpoints.

    shifted: True where position p is predicted at p - 1, as in a model that was initialised from an
             autoregressive one (Dream, section 3.1 of arXiv 2508.15487); False where at p itself (LLaDA,
             arXiv 2502.09992).
    biased:  True where the checkpoint has q, k and v biases; else they are set to zero.
    mask_id: the mask token where config.json does not name it.
    schedule: of its published sampler.
    modules: of transformers, "Qwen2" or "Qwen3".
    causal_block: positions of a block, unless config.json states them, where attention is causal from block
             to block (see `block_diffusion`); None: full attention.
    sub_block: positions within a block that are written before those behind them; None: all of it.
    shape, rename: the shape from a config.json, and the module's name from a tensor's.
    """

    name: str
    shifted: bool
    biased: bool
    mask_id: int | None
    shape: Callable[[Settings], Shape]
    rename: Callable[[str], str]
    schedule: Schedule = DREAM
    modules: str = "Qwen2"
    causal_block: int | None = None
    sub_block: int | None = None


def family_of(settings: Settings, where: str) -> Family:
    """The family of config.json's model_type; raises CheckpointError for an unknown one."""
    kind = settings.get("model_type")
    if kind not in FAMILIES:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

        known = " or ".join(sorted([*FAMILIES, DIFFUSION_GEMMA]))
        remedy = "These run here: Dream, Dream-Coder, DiffuCoder, LLaDA, d3LLM, Fast-dLLM v2, SDAR and "
        remedy += "DiffusionGemma."
        if kind in CAUSAL:
            remedy = "An autoregressive model belongs on the edge: see `python -m convert`."
        raise CheckpointError(
            f"{where}: expected a diffusion language model with model_type {known}, found {kind!r}. {remedy}"
        )
    return FAMILIES[str(kind)]


def _need(settings: Settings, name: str) -> Any:
    if settings.get(name) is None:
        raise CheckpointError(f"config.json: expected a field {name!r}, found none among {sorted(settings)}")
    return settings[name]


def _refuse(settings: Settings, expected: Mapping[str, Any]) -> None:
    """Raises CheckpointError where a field has a value that the stock modules do not implement."""
    for name, value in expected.items():
        found = settings.get(name, value)
        if found != value:
            raise CheckpointError(f"config.json: expected {name} = {value!r}, found {found!r}: not supported")


def _dream_shape(settings: Settings) -> Shape:
    _refuse(settings, {"rope_scaling": None, "use_sliding_window": False, "hidden_act": "silu"})
    # transformers 5 writes the rope settings in one object
    rope = settings.get("rope_parameters") or {}
    theta = rope.get("rope_theta", settings.get("rope_theta"))
    if theta is None:
        raise CheckpointError("config.json: expected a field 'rope_theta', found none")
    if rope.get("rope_type", "default") != "default":
        raise CheckpointError(f"config.json: expected rope_type = 'default', found {rope['rope_type']!r}")
    heads = int(_need(settings, "num_attention_heads"))
    return Shape(
        vocab_size=int(_need(settings, "vocab_size")),
        hidden_size=int(_need(settings, "hidden_size")),
        intermediate_size=int(_need(settings, "intermediate_size")),
        num_hidden_layers=int(_need(settings, "num_hidden_layers")),
        num_attention_heads=heads,
        num_key_value_heads=int(settings.get("num_key_value_heads") or heads),
        max_position_embeddings=int(_need(settings, "max_position_embeddings")),
        rms_norm_eps=float(settings.get("rms_norm_eps", 1e-6)),
        rope_theta=float(theta),
        tie_word_embeddings=bool(settings.get("tie_word_embeddings", False)),
        head_dim=settings.get("head_dim"),
    )


def _sdar_shape(settings: Settings) -> Shape:
    _refuse(settings, {"attention_bias": False})
    return _dream_shape(settings)


def _llada_shape(settings: Settings) -> Shape:
    none = "alibi include_bias include_qkv_bias attention_layer_norm input_emb_norm scale_logits".split()
    kinds = {"block_type": "llama", "activation_type": "silu", "layer_norm_type": "rms", "rope": True}
    _refuse(settings, kinds | dict.fromkeys(none, False))
    heads = int(_need(settings, "n_heads"))
    return Shape(
        # the embedding is padded: it, not vocab_size, has the rows of the checkpoint
        vocab_size=int(settings.get("embedding_size") or _need(settings, "vocab_size")),
        hidden_size=int(_need(settings, "d_model")),
        intermediate_size=int(_need(settings, "mlp_hidden_size")),
        num_hidden_layers=int(_need(settings, "n_layers")),
        num_attention_heads=heads,
        num_key_value_heads=int(settings.get("n_kv_heads") or heads),
        max_position_embeddings=int(_need(settings, "max_sequence_length")),
        rms_norm_eps=float(settings.get("rms_norm_eps", 1e-5)),
        rope_theta=float(settings.get("rope_theta", 10_000.0)),
        tie_word_embeddings=bool(settings.get("weight_tying", False)),
    )


_LLADA_BLOCK = re.compile(r"model\.transformer\.blocks\.(\d+)\.(\w+)\.(weight|bias)")
_LLADA_PARTS = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_LLADA_OUTER = {
    "model.transformer.wte.weight": "model.embed_tokens.weight",
    "model.transformer.ln_f.weight": "model.norm.weight",
    "model.transformer.ff_out.weight": "lm_head.weight",
}


def _llada_rename(name: str) -> str:
    match = _LLADA_BLOCK.fullmatch(name)
    if match and match[2] in _LLADA_PARTS:
        return f"model.layers.{match[1]}.{_LLADA_PARTS[match[2]]}.{match[3]}"
    return _LLADA_OUTER.get(name, name)


FAMILIES: Mapping[str, Family] = {
    "Dream": Family("Dream", True, True, None, _dream_shape, lambda name: name),
    "llada": Family("LLaDA", False, False, 126_336, _llada_shape, _llada_rename, LLADA),
    "Fast_dLLM_Qwen": Family(
        "Fast-dLLM v2", True, True, 151_665, _dream_shape, lambda name: name, causal_block=32, sub_block=8
    ),
    "sdar": Family(
        "SDAR", False, True, 151_669, _sdar_shape, lambda name: name, modules="Qwen3", causal_block=4
    ),
}
"""By model_type. Dream-Coder, DiffuCoder and d3LLM-Dream state "Dream" too, d3LLM-LLaDA "llada"."""
