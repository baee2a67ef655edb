"""The tokenizer of a pair: a byte-level BPE in Qwen2's form, trained on the texts of its world.

Special tokens have Qwen's names, and Dream's mask token follows them, so that code for this tokenizer works
with the real ones. Text is split as in Qwen2 except for numbers, which are split into pairs of digits with
the space before them: arithmetic over single digits is beyond a model this small.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE

from edge_runtime.text.splits import SPLITS
from lab.pairs.problem import Draw

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Qwen's template without its default system message, which would double the length of a tiny prompt."""

CONFIG = {
    "tokenizer_class": "Qwen2Tokenizer",
    "model_max_length": 2048,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "unk_token": None,
    "mask_token": "<|mask|>",
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "chat_template": CHAT_TEMPLATE,
}
"""`tokenizer_config.json`, as transformers reads it."""


def special_ids(first: int) -> tuple[int, int, int, int]:
    """Ids of `SPECIALS`, which follow the ordinary tokens, of which there are `first`."""
    return first, first + 1, first + 2, first + 3


def texts(draws: Collection[Draw], samples: int, seed: int = 0) -> Iterator[str]:
    """Prompts and answers of every kind, half of them of what is known, on which a tokenizer is trained."""
    rng = random.Random(seed)
    for index in range(samples):
        for draw in draws:
            problem = draw(rng, index % 2 == 0)
            yield problem.prompt
            yield problem.answer


def train(draws: Collection[Draw], size: int, samples: int = 10_000) -> Tokenizer:
    """A tokenizer with `size` ordinary ids followed by `SPECIALS`; the same on every run."""
    tokenizer = byte_level("shipped", texts(draws, samples), size)
    if tokenizer.get_vocab_size() != size:
        raise RuntimeError(f"expected {size} tokens, the corpus gave {tokenizer.get_vocab_size()}")
    tokenizer.add_special_tokens(list(SPECIALS))
    return tokenizer


def byte_level(split: str, corpus: Iterable[str], size: int) -> Tokenizer:
    """A byte-level BPE of at most `size` tokens in Qwen2's form; split: of `SPLITS`."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLITS[split]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
