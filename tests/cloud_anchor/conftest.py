"""Small random diffusion checkpoints in Dream's key layout, for the tests of this room."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import checkpoints  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)

MASK = "<|mask|>"


def make_dream(path: Path, **options: object) -> Path:
    """A random Qwen2 checkpoint turned into Dream's form: its config.json, a mask token, its end ids."""
    checkpoints.write_tiny_qwen(path, **{"padding": 5, "tied": False, **options})
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


@pytest.fixture(scope="session")
def dream_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dream(tmp_path_factory.mktemp("dream") / "tiny")
