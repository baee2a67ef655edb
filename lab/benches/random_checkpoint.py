"""python -m lab.benches.random_checkpoint FOLDER: a Qwen2 checkpoint with random weights.

Responsible for checkpoints that load like published ones but have learned nothing: a byte-level BPE tokenizer
in Qwen2's form, a chat template, and noise in the exact shape of a published model, or in a small one. Speed
and size are those of trained weights; answers are noise, the same for the same seed. Not responsible for what
is measured on them (see `full_size`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.cli import option, run_options
from common.files import read_text
from convert.errors import OptionError
from lab.pairs.tokens import CONFIG, byte_level

TOKENIZER = "a published tokenizer.json, or .json.gz"
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

DEFAULT_SYSTEM = "You are a small test model."

CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' -%}\n"
    "    {{- '<|im_start|>system\\n" + DEFAULT_SYSTEM + "<|im_end|>\\n' -}}\n"
    "{%- endif -%}\n"
    "{%- for message in messages -%}\n"
    "    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}\n"
)
"""Qwen2's conversation form without tools: a default system message where none is given."""

_CORPUS = (
    "The river rises in the northern hills and reaches the sea after three hundred miles.",
    "A baker sold 24 loaves in the morning and half as many in the afternoon; how many did she sell?",
    "def add(first, second):\n    return first + second\n",
    "The capital of the province is a town of 41,000 people. Its mayor was elected in 2019.",
    "Question: which of the following is the largest?\nA. the town\nB. the province\nC. the river\n",
)

_ORDINARY = 300
"""Tokens of the small tokenizer, without the special ones."""

_SIZES = {
    "tiny": (64, 128, 2, 4, 2, 320),
    "0.5B": (896, 4864, 24, 14, 2, 151_936),
    "1.5B": (1536, 8960, 28, 12, 2, 151_936),
    "3B": (2048, 11_008, 36, 16, 2, 151_936),
}
SHAPES: dict[str, dict[str, Any]] = {
    name: {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": tokens,
        "tie_word_embeddings": True,
    }
    for name, (hidden, inner, layers, heads, keys, tokens) in _SIZES.items()
}
"""A small shape, and those of the published Qwen2.5-Instruct models."""


def write_tokenizer(path: Path, *, vocab_size: int = _ORDINARY) -> None:
    """Write tokenizer.json and tokenizer_config.json of a byte-level BPE tokenizer in Qwen2's form.

    vocab_size: ordinary tokens (256 bytes and the merges); the three special tokens follow them.
    """
    tokenizer = byte_level("qwen2", _CORPUS * 2, vocab_size)
    tokenizer.add_special_tokens(list(SPECIALS))
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {name: value for name, value in CONFIG.items() if name != "mask_token"}
    settings |= {"chat_template": CHAT_TEMPLATE, "bos_token": None, "add_bos_token": False}
    (path / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")


def write_random_checkpoint(
    path: Path, size: str, *, seed: int = 0, tokenizer: str | None = None, **changes: int
) -> Path:
    """Write a checkpoint of one of `SHAPES` with random bfloat16 weights; return its folder.

    changes:   of the shape, such as num_hidden_layers=2 for a model cut short.
    tokenizer: text of the published tokenizer.json. Without it the tokenizer is a small one, and most rows of
               a large embedding have no token, as some of a published model's have none.
    """
    # Here, not above: the tests of the device use the tokenizer of this module, and a device has no torch.
    import torch
    from safetensors.torch import save_file

    from convert.source.checkpoint import shape_of

    ordinary = _ORDINARY
    write_tokenizer(path, vocab_size=ordinary)
    if tokenizer is not None:
        (path / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        ordinary = len(json.loads(tokenizer)["model"]["vocab"])
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1_000_000.0,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "bos_token_id": ordinary,
        "eos_token_id": ordinary + 2,
        **SHAPES[size],
        **changes,
    }
    (path / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shape_of(config, str(path)).tensor_shapes().items():
        noise = torch.empty(shape, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
        tensors[name] = noise + 1 if "norm" in name else noise
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


@dataclass(frozen=True)
class RandomOptions:
    """Write a Qwen2 checkpoint with random weights."""

    folder: Path = option(None, "to write", flags=("folder",))
    size: str = option("tiny", "of the model", choices=tuple(SHAPES))
    seed: int = option(0, "of the weights")
    tokenizer: Path | None = option(None, TOKENIZER)


EPILOG = """example:
  python -m lab.benches.random_checkpoint runs/random --size tiny
  python -m convert runs/random -o runs/bundle --threshold int8.greedy=0"""


def main(argv: Sequence[str] | None = None) -> int:
    def write(options: RandomOptions) -> None:
        text = read_text(options.tokenizer, OptionError) if options.tokenizer else None
        print(write_random_checkpoint(options.folder, options.size, seed=options.seed, tokenizer=text))

    return run_options("lab.benches.random_checkpoint", write, RandomOptions, argv, EPILOG)


if __name__ == "__main__":
    sys.exit(main())
