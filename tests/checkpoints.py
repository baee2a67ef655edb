"""Small random checkpoints in Qwen2's form, for the tests of every room.

Knows how to write a byte-level BPE tokenizer, a chat template and a Qwen2 checkpoint with random weights that
`transformers` loads like a published one. Nothing here has learned anything: the outputs are noise, but noise
that is the same for the same seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
"""The conversation form of Qwen2, without tools: a default system message where none is given."""

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the Qwen2 vocabulary family cuts text before merging: digits stand alone."""

_CORPUS = (
    "The river rises in the northern hills and reaches the sea after three hundred miles.",
    "A baker sold 24 loaves in the morning and half as many in the afternoon; how many did she sell?",
    "def add(first, second):\n    return first + second\n",
    "The capital of the province is a town of 41,000 people. Its mayor was elected in 2019.",
    "Question: which of the following is the largest?\nA. the town\nB. the province\nC. the river\n",
)


def write_tokenizer(path: Path, *, vocab_size: int = 300) -> None:
    """Write tokenizer.json and tokenizer_config.json of a byte-level BPE tokenizer in Qwen2's form.

    vocab_size: ordinary tokens (256 bytes and the merges); the three special tokens follow them.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 2, trainer)
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


def tokenizer_json(vocab_size: int = 300) -> dict[str, Any]:
    """The parsed tokenizer.json that `write_tokenizer` writes."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), vocab_size=vocab_size)
        data: dict[str, Any] = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
    return data


def write_tiny_qwen(
    path: Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int = 128,
    vocab_size: int = 300,
    padding: int = 17,
    tied: bool = True,
    positions: int = 512,
    std: float = 0.2,
    sharded: bool = False,
) -> Path:
    """Write a random Qwen2 checkpoint (config, weights, tokenizer, generation config); return its folder.

    vocab_size: ordinary tokens. The embedding has 3 special tokens and `padding` unused rows more, as
    Qwen2.5's has. Biases and norms are random too, so that a graph that forgets one gives other logits.
    std: of the layers' weights. The default is wide enough for greedy text that varies.
    """
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    from cloud_anchor.model.families import rope_option

    write_tokenizer(path, vocab_size=vocab_size)
    end_of_text, _, im_end = range(vocab_size, vocab_size + 3)
    config = Qwen2Config(
        vocab_size=vocab_size + len(SPECIALS) + padding,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=positions,
        **rope_option(1_000_000.0),
        tie_word_embeddings=tied,
        rms_norm_eps=1e-6,
        bos_token_id=end_of_text,
        eos_token_id=im_end,
        initializer_range=std,
    )
    generator = torch.Generator().manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # A tied embedding as wide as the layers would make every token its own best successor.
            scale = std / 10 if "embed_tokens" in name else std
            noise = torch.randn(weight.shape, generator=generator) * scale
            weight.copy_(1.0 + noise if "norm" in name else noise)
    model.generation_config = GenerationConfig(
        bos_token_id=end_of_text,
        eos_token_id=[im_end, end_of_text],
        pad_token_id=end_of_text,
        do_sample=False,
    )
    model.save_pretrained(path, safe_serialization=True, max_shard_size="100KB" if sharded else "5GB")
    return path


QWEN25: dict[str, dict[str, Any]] = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "3B": {
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
}
"""Shapes of the published Qwen2.5-Instruct models."""


def write_random_qwen25(
    path: Path, size: str, *, seed: int = 0, tokenizer: str | None = None, **changes: int
) -> Path:
    """Write a checkpoint of a published Qwen2.5 shape with random bfloat16 weights; return its folder.

    changes: of the shape, such as num_hidden_layers=2 for a cut.
    tokenizer: text of the published tokenizer.json. Without it the tokenizer is a small one, and most rows of
    the embedding have no token, as some of the published model's have none.
    """
    import torch
    from safetensors.torch import save_file

    from convert.source import shape_of

    ordinary = 300
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
        **QWEN25[size],
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
