"""Small random diffusion checkpoints in the key layouts of their families."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.benches.random_checkpoint import write_tokenizer
from tests.checkpoints import write_tiny_decoder, write_tiny_qwen

MASK = "<|mask|>"


def make_dream(path: Path, **options: object) -> Path:
    """A random Dream checkpoint."""
    return as_dream(write_tiny_qwen(path, **{"padding": 5, "tied": False, **options}))


def as_dream(path: Path) -> Path:
    """Turns a Qwen2 checkpoint into Dream's form: its config.json, a mask token, its end ids."""
    old = json.loads((path / "config.json").read_text())
    names = (
        "attention_dropout hidden_act hidden_size initializer_range intermediate_size "
        "max_position_embeddings max_window_layers num_attention_heads num_hidden_layers "
        "num_key_value_heads rms_norm_eps tie_word_embeddings vocab_size"
    )
    ordinary = old["bos_token_id"]
    config = {name: old[name] for name in names.split() if name in old} | {
        "architectures": ["DreamModel"],
        "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
        "bos_token_id": ordinary,
        "eos_token_id": ordinary,
        "pad_token_id": ordinary,
        "mask_token_id": _add_mask(path),
        "model_type": "Dream",
        "rope_scaling": None,
        "rope_theta": 1e6,
        "sliding_window": None,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    (path / "config.json").write_text(json.dumps(config))
    return path


_LLADA_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
_LLADA_OUTER = {
    "model.embed_tokens.weight": "model.transformer.wte.weight",
    "model.norm.weight": "model.transformer.ln_f.weight",
    "lm_head.weight": "model.transformer.ff_out.weight",
}


def make_llada(path: Path) -> Path:
    """The weights of `make_dream` in LLaDA's key layout, without q, k and v biases."""
    from safetensors.torch import load_file, save_file

    make_dream(path)
    old = json.loads((path / "config.json").read_text())
    config = {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "activation_type": "silu",
        "alibi": False,
        "block_type": "llama",
        "d_model": old["hidden_size"],
        "embedding_size": old["vocab_size"],
        "eos_token_id": old["eos_token_id"],
        "pad_token_id": old["pad_token_id"],
        "include_bias": False,
        "include_qkv_bias": False,
        "layer_norm_type": "rms",
        "mask_token_id": old["mask_token_id"],
        "max_sequence_length": old["max_position_embeddings"],
        "mlp_hidden_size": old["intermediate_size"],
        "n_heads": old["num_attention_heads"],
        "n_kv_heads": old["num_key_value_heads"],
        "n_layers": old["num_hidden_layers"],
        "rms_norm_eps": old["rms_norm_eps"],
        "rope": True,
        "rope_theta": old["rope_theta"],
        "scale_logits": False,
        "vocab_size": old["vocab_size"] - 3,
        "weight_tying": False,
    }
    (path / "config.json").write_text(json.dumps(config))
    weights = {}
    for name, tensor in load_file(path / "model.safetensors").items():
        if name in _LLADA_OUTER:
            weights[_LLADA_OUTER[name]] = tensor
        elif not name.endswith(".bias"):
            _, _, layer, part = name.split(".", 3)
            part = _LLADA_PARTS[part.removesuffix(".weight")]
            weights[f"model.transformer.blocks.{layer}.{part}.weight"] = tensor
    save_file(weights, path / "model.safetensors")
    return path


def without_tokenizer_json(path: Path) -> Path:
    """The folder with its tokenizer as Dream's is on the hub: vocab.json, merges.txt, and the special tokens
    in tokenizer_config.json.
    """
    data = json.loads((path / "tokenizer.json").read_text())
    (path / "vocab.json").write_text(json.dumps(data["model"]["vocab"]))
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    settings = json.loads((path / "tokenizer_config.json").read_text())
    settings["added_tokens_decoder"] = {str(token["id"]): token for token in data["added_tokens"]}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    (path / "tokenizer.json").unlink()
    return path


BLOCK_FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "Fast_dLLM_Qwen": ("Qwen2", {"bd_size": 32}),
    "sdar": ("Qwen3", {"block_size": 4, "fuse_cross_entropy": True}),
}
"""By model_type: the decoder whose tensors its checkpoints have, and fields of its config.json."""


def make_block_model(path: Path, kind: str, **options: Any) -> Path:
    """A random checkpoint of one of BLOCK_FAMILIES with a mask token, in float32; it has one end marker."""
    decoder, fields = BLOCK_FAMILIES[kind]
    write_tiny_decoder(path, decoder, **{"padding": 5, "tied": False, **options})
    old = json.loads((path / "config.json").read_text())
    ordinary = old["vocab_size"] - 8
    end = {"eos_token_id": ordinary + 2, "pad_token_id": ordinary + 2}
    config = old | fields | end | {"model_type": kind, "mask_token_id": _add_mask(path), "rope_theta": 1e6}
    config.pop("rope_parameters", None)
    (path / "config.json").write_text(json.dumps(config | {"rope_scaling": None}))
    (path / "generation_config.json").write_text(json.dumps(end))
    return path


def _add_mask(path: Path) -> int:
    """The id of a mask token behind all others."""
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    mask: int = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][-1] | {"id": mask, "content": MASK})
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return mask


def make_diffusion_gemma(
    path: Path,
    *,
    canvas: int = 16,
    ordinary: int = 300,
    rows: int | None = None,
    weights: bool = True,
    std: float = 0.15,
    sure: float = 12,
    sizes: Mapping[str, int] | None = None,
    **stated: object,
) -> Path:
    """A random DiffusionGemma as transformers saves it, in float32, all kinds of layers in small.

    rows: of its logits. weights: False for its other files only. stated: in its generation_config.json.
    sizes: of its part for text, in place of the least. std, sure: how wide its weights are, and how sure it
    is. The end markers are those of the tokenizer's template.
    """
    import torch

    pytest.importorskip("transformers.models.diffusion_gemma")
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

    end = {"eos_token_id": [ordinary + 2, ordinary], "pad_token_id": ordinary}
    text = {
        "vocab_size": rows or ordinary + 8,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "global_head_dim": 24,
        "num_global_key_value_heads": 1,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 12,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 24,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        **end,
        **(sizes or {}),
    }
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
    }
    config = DiffusionGemmaConfig(
        text_config=text,
        vision_config={"model_type": "gemma4_vision", **vision},
        canvas_length=canvas,
        image_token_id=ordinary + 5,
    )
    write_tokenizer(path, vocab_size=ordinary)
    if weights:
        torch.manual_seed(3)
        net = DiffusionGemmaForBlockDiffusion(config).eval()
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for name, weight in net.named_parameters():
                scale = 0.05 if "embed_tokens" in name else std
                if "norm" not in name and "scale" not in name:
                    weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
            # sure of some positions and of others not
            net.lm_head.weight.mul_(sure)
        net.generation_config = net.generation_config_class(**end, max_new_tokens=canvas)
        net.save_pretrained(path)
    config.save_pretrained(path)
    stated = {"max_new_tokens": canvas, "max_denoising_steps": 12, **end, **stated}
    (path / "generation_config.json").write_text(json.dumps(stated))
    return path
