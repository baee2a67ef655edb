"""python -m lab.benches.random_checkpoint FOLDER: a Qwen2 checkpoint with random weights.

Responsible for checkpoints that load like published ones but have learned nothing: a byte-level BPE tokenizer
in Qwen2's form, a chat template, and noise in the exact shape of a published model, or in a small one. Speed
and size are those of trained weights; answers are noise, the same for the same seed. Not responsible for what
is measured on them (see `full_size`).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.cli import CommandParser, run_command
from convert.errors import OptionError
from lab.pairs.tokens import byte_level

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

_QWEN25_VOCAB = {"vocab_size": 151_936, "tie_word_embeddings": True}
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 320,
        "tie_word_embeddings": True,
    },
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        **_QWEN25_VOCAB,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        **_QWEN25_VOCAB,
    },
    "3B": {
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        **_QWEN25_VOCAB,
    },
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
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "add_bos_token": False,
        "add_prefix_space": False,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": 512,
        "split_special_tokens": False,
    }
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


def read_tokenizer(path: Path) -> str:
    """Text of a tokenizer.json, or of one under gzip; raises OptionError."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise OptionError(
            f"--tokenizer {path}: expected a readable tokenizer.json, found: {error}."
        ) from error


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.random_checkpoint",
        description="Write a Qwen2 checkpoint with random weights.",
        epilog="example:\n  python -m lab.benches.random_checkpoint runs/random --size tiny\n"
        "  python -m convert runs/random -o runs/bundle --threshold int8.greedy=0",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=tuple(SHAPES), default="tiny", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="a published tokenizer.json, or .json.gz"
    )
    args = parser.parse_args(argv)

    def write() -> None:
        text = read_tokenizer(args.tokenizer) if args.tokenizer else None
        print(write_random_checkpoint(args.folder, args.size, seed=args.seed, tokenizer=text))

    return run_command("random_checkpoint", write)


if __name__ == "__main__":
    sys.exit(main())
