"""Small random diffusion checkpoints in Dream's key layout."""

from __future__ import annotations

import json
from pathlib import Path

from tests.checkpoints import write_tiny_qwen

MASK = "<|mask|>"


def make_dream(path: Path, **options: object) -> Path:
    """A random Qwen2 checkpoint turned into Dream's form: its config.json, a mask token, its end ids."""
    write_tiny_qwen(path, **{"padding": 5, "tied": False, **options})
    old = json.loads((path / "config.json").read_text())
    names = (
        "attention_dropout hidden_act hidden_size initializer_range intermediate_size "
        "max_position_embeddings max_window_layers num_attention_heads num_hidden_layers "
        "num_key_value_heads rms_norm_eps tie_word_embeddings vocab_size"
    )
    ordinary = old["vocab_size"] - 8
    config = {name: old[name] for name in names.split()} | {
        "architectures": ["DreamModel"],
        "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
        "bos_token_id": ordinary,
        "eos_token_id": ordinary,
        "pad_token_id": ordinary,
        "mask_token_id": ordinary + 3,
        "model_type": "Dream",
        "rope_scaling": None,
        "rope_theta": 1e6,
        "sliding_window": None,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    (path / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][-1] | {"id": ordinary + 3, "content": MASK})
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return path
