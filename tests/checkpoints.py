"""Small random checkpoints, for the tests of every package.

Responsible for checkpoints with wider weights than `lab.benches.random_checkpoint` writes: their greedy text
varies, so that a wrong graph shows. The tokenizer and the chat template are those of that module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.benches.random_checkpoint import SPECIALS, write_tokenizer


def tokenizer_json(vocab_size: int = 300) -> dict[str, Any]:
    """The parsed tokenizer.json that `write_tokenizer` writes."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), vocab_size=vocab_size)
        data: dict[str, Any] = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
    return data


def write_tiny_qwen(path: Path, **options: Any) -> Path:
    """`write_tiny_decoder` of a Qwen2."""
    return write_tiny_decoder(path, "Qwen2", **options)


def write_tiny_decoder(
    path: Path,
    family: str,
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
    **more: Any,
) -> Path:
    """Write a random checkpoint (config, weights, tokenizer, generation config); return its folder.

    family: Qwen2, Qwen3, Llama or Gemma3; more: of its configuration.
    vocab_size: ordinary tokens. The embedding has 3 special tokens and `padding` unused rows more, as
    Qwen2.5's has. Biases and norms are random too, so that a graph that forgets one gives other logits.
    std: of the layers' weights. The default is wide enough for greedy text that varies.
    """
    import torch
    import transformers

    from cloud_anchor.model.families import rope_option

    write_tokenizer(path, vocab_size=vocab_size)
    end_of_text, _, im_end = range(vocab_size, vocab_size + 3)
    gemma = (
        family == "Gemma3"
    )  # it has two bases of rotary angles, and norms that multiply by 1 + their weight
    config = getattr(transformers, "Gemma3TextConfig" if gemma else f"{family}Config")(
        vocab_size=vocab_size + len(SPECIALS) + padding,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=positions,
        **({} if gemma else rope_option(1_000_000.0)),
        tie_word_embeddings=tied,
        rms_norm_eps=1e-6,
        bos_token_id=end_of_text,
        eos_token_id=im_end,
        initializer_range=std,
        **more,
    )
    generator = torch.Generator().manual_seed(seed)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # A tied embedding as wide as the layers would make every token its own best successor.
            scale = std / 10 if "embed_tokens" in name else std
            noise = torch.randn(weight.shape, generator=generator) * scale
            weight.copy_(1.0 + noise if "norm" in name and not gemma else noise)
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=end_of_text,
        eos_token_id=[im_end, end_of_text],
        pad_token_id=end_of_text,
        do_sample=False,
    )
    model.save_pretrained(path, safe_serialization=True, max_shard_size="100KB" if sharded else "5GB")
    return path


OTHER_CORPUS = (
    "Täglich backt sie 24 Brötchen für die Straße, naïve cafés und das Döner 🎉🎊 am Eck; wie viele bleiben?",
    "你好，世界。今天天气很好。 你好 🎉 Привет, мир!  Where does the river end? She sold seven loaves; the",
    "return [value for value in values if value]\n\n\n        raise ValueError(value)\n    else: {}();\r\n",
)


def tokenizer_with_other_merges(vocab_size: int = 420) -> str:
    """The text of a tokenizer.json in the same form as `write_tokenizer`'s, with merges of another corpus:
    tokens of several characters, and of parts of characters. No token has the id that it has there.
    """
    from tokenizers import Tokenizer, pre_tokenizers, trainers

    form = tokenizer_json()
    tokenizer = Tokenizer.from_str(json.dumps({**form, "added_tokens": []}))
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(OTHER_CORPUS * 2, trainer)
    assert tokenizer.get_vocab_size() == vocab_size
    data = json.loads(tokenizer.to_str())
    data["model"]["vocab"] = {piece: vocab_size - 1 - id_ for piece, id_ in data["model"]["vocab"].items()}
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer.to_str()


def write_tiny_qwen_with_other_merges(path: Path, *, vocab_size: int = 420, **options: Any) -> Path:
    """`write_tiny_qwen` with that tokenizer."""
    write_tiny_qwen(path, vocab_size=vocab_size, **options)
    (path / "tokenizer.json").write_text(tokenizer_with_other_merges(vocab_size), encoding="utf-8")
    return path
