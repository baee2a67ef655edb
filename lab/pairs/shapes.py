"""Shapes of the tiny models, and their checkpoint folders.

Responsible for configurations and for writing checkpoints. Not responsible for training.

tiny-dream has Dream's architecture (Qwen2 modules with full attention, right-shifted logits, a mask token);
tiny-qwen is a Qwen2 of a tenth of its size, tiny-qwen-large one of a third. Folders have the layout of
Dream's and Qwen2.5's own, so that the same loading code reads them.
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
from lab.pairs.vocabulary import VOCABULARY


def special_ids(first: int) -> tuple[int, int, int, int]:
    """Ids of `SPECIALS`, which follow the ordinary tokens, of which there are `first`."""
    return first, first + 1, first + 2, first + 3


END_OF_TEXT, IM_START, IM_END, MASK = special_ids(VOCABULARY)
PADDED_VOCABULARY = 1792

_COMMON: dict[str, Any] = {
    "vocab_size": PADDED_VOCABULARY,
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "use_sliding_window": False,
    "bos_token_id": END_OF_TEXT,
    "pad_token_id": END_OF_TEXT,
}

SHAPES: dict[str, dict[str, Any]] = {
    "tiny-dream": _COMMON
    | {
        "max_position_embeddings": 192,  # longest training row
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        # As many key and value heads as query heads: copying needs values wide enough to hold a name.
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "tie_word_embeddings": False,
        "eos_token_id": END_OF_TEXT,
    },
    "tiny-qwen": _COMMON
    | {
        "max_position_embeddings": 256,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "eos_token_id": IM_END,
    },
}
SHAPES["tiny-qwen-large"] = SHAPES["tiny-qwen"] | {"hidden_size": 128, "intermediate_size": 384}


def create(name: str) -> Qwen2ForCausalLM:
    """A tiny model with random weights."""
    return build(SHAPES[name])


def build(configuration: Mapping[str, Any]) -> Qwen2ForCausalLM:
    """A model of this configuration with random weights."""
    shape = dict(configuration)
    rope = rope_option(shape.pop("rope_theta"))
    return Qwen2ForCausalLM(Qwen2Config(**shape, **rope, attn_implementation="eager"))


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def save(name: str, model: Qwen2ForCausalLM, tokenizer_folder: Path, folder: Path) -> None:
    """Write a tiny model's checkpoint folder (see `write`)."""
    write(SHAPES[name], model, tokenizer_folder, folder, diffusion=name == "tiny-dream")


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

    diffusion: of Dream's architecture instead of Qwen2's. canvas: its default length and steps.
    The folder is replaced as a whole: an interruption leaves the old one or the new one.
    """
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
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
    (fresh / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (fresh / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    state = {
        key: value.detach().to(torch.bfloat16).contiguous()
        for key, value in model.state_dict().items()
        if not (config["tie_word_embeddings"] and key == "lm_head.weight")
    }
    save_file(state, fresh / "model.safetensors", metadata={"format": "pt"})
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_folder / file, fresh / file)
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)
