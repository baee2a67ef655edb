"""Shapes of models of Dream's and Qwen2's architecture, and their checkpoint folders.

Responsible for configurations and for writing checkpoints. Not responsible for training. Folders have the
layout of Dream's and Qwen2.5's own, so that the same loading code reads them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from cloud_anchor.model.families import rope_option
from lab.pairs.tokens import SPECIALS, special_ids


def shape(
    tokens: int,
    *,
    positions: int,
    hidden: int,
    mlp: int,
    layers: int,
    heads: int,
    diffusion: bool,
    rows: int | None = None,
) -> dict[str, Any]:
    """The configuration of a Qwen2 model: with Dream's untied head, or with tied embeddings.

    There are as many key and value heads as query heads: copying needs values wide enough to hold a name.
    tokens: ordinary ones. rows: of the embedding, where it is padded.
    """
    end_of_text, _, im_end, _ = special_ids(tokens)
    return {
        "vocab_size": rows or tokens + len(SPECIALS),
        "max_position_embeddings": positions,
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_sliding_window": False,
        "bos_token_id": end_of_text,
        "pad_token_id": end_of_text,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "tie_word_embeddings": not diffusion,
        "eos_token_id": end_of_text if diffusion else im_end,
    }


def build(configuration: Mapping[str, Any]) -> Qwen2ForCausalLM:
    """A model of this configuration with random weights."""
    shape = dict(configuration)
    rope = rope_option(shape.pop("rope_theta"))
    return Qwen2ForCausalLM(Qwen2Config(**shape, **rope, attn_implementation="eager"))


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def write(
    configuration: Mapping[str, Any],
    model: Qwen2ForCausalLM,
    tokenizer_folder: Path,
    folder: Path,
    *,
    diffusion: bool,
    canvas: int = 128,
) -> None:
    """Write a checkpoint folder in bf16: config, weights, tokenizer, generation config.

    The folder is replaced as a whole: an interruption leaves the old one or the new one.
    diffusion: of Dream's architecture instead of Qwen2's. canvas: its default length and steps.
    """
    end_of_text, _, im_end, mask = special_ids(configuration["pad_token_id"])
    config = dict(configuration) | {"torch_dtype": "bfloat16"}
    generation: dict[str, Any] = {"pad_token_id": end_of_text}
    if diffusion:
        config |= {"model_type": "Dream", "architectures": ["DreamModel"], "mask_token_id": mask}
        generation |= {
            "eos_token_id": end_of_text,
            "mask_token_id": mask,
            "alg": "confidence",
            "steps": canvas,
            "max_new_tokens": canvas,
        }
    else:
        config |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
        generation |= {"eos_token_id": [im_end, end_of_text], "do_sample": False}
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (fresh / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    state = {
        key: value.detach().to(torch.bfloat16).contiguous()
        for key, value in model.state_dict().items()
        if not (config["tie_word_embeddings"] and key == "lm_head.weight")
    }
    save_file(state, fresh / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_folder / name, fresh / name)
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)
