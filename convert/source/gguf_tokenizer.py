"""The tokenizer of a GGUF file, in the form of a checkpoint folder's files.

Responsible for byte-level BPE vocabularies ("gpt2" in the file) whose way to split text has a known name. Not
responsible for the weights (see `gguf`), nor for checking the result (see `tokenizer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convert.errors import SourceError
from convert.source.splits import DIGIT, GPT2_SPLIT, LLAMA3_SPLIT, byte_level, pre_tokenizer
from edge_runtime.text.tokenizer import QWEN2_SPLIT

Metadata = Mapping[str, Any]
"""The values of a GGUF file by their key."""

_NORMAL, _USER_DEFINED, _UNUSED = 1, 4, 5


@dataclass(frozen=True)
class SplitRule:
    """How a vocabulary splits text before merging: expressions applied in turn, after NFC where it is set.

    ignore_merges: a piece that is a token as a whole is that token, whatever the merges would give.
    """

    expressions: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False


SPLITS = {
    "gpt-2": SplitRule((GPT2_SPLIT,)),
    "smollm": SplitRule((DIGIT, GPT2_SPLIT)),
    "qwen2": SplitRule((QWEN2_SPLIT,), nfc=True),
    "llama-bpe": SplitRule((LLAMA3_SPLIT,), ignore_merges=True),
}
"""By the name in the file (tokenizer.ggml.pre)."""


def tokenizer_files(metadata: Metadata, where: str) -> dict[str, dict[str, Any]]:
    """The content of tokenizer.json and tokenizer_config.json, by file name; where: the file, for messages.

    Raises SourceError for a vocabulary of another kind.
    """
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in SPLITS:
        raise SourceError(
            f"{where}: expected a byte-level tokenizer (gpt2) that splits text like {', '.join(SPLITS)}, "
            f"found {kind!r} with {split!r}. Give the folder of the original tokenizer with --tokenizer."
        )
    tokens = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens or ())
    merges = metadata.get("tokenizer.ggml.merges")
    if not tokens or not merges or len(types) != len(tokens):
        raise SourceError(
            f"{where}: expected tokens, types and merges, found {len(tokens or ())} tokens, "
            f"{len(types)} types and {len(merges or ())} merges. Give its folder with --tokenizer."
        )
    return {
        "tokenizer.json": _tokenizer(SPLITS[split], tokens, types, merges),
        "tokenizer_config.json": _settings(metadata, tokens),
    }


def end_ids(metadata: Metadata) -> list[int]:
    """Ids that end an answer: of text, of turn and of message, where the file has them."""
    keys = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
    return list(dict.fromkeys(int(metadata[key]) for key in keys if key in metadata))


def _tokenizer(rule: SplitRule, tokens: list[str], types: list[int], merges: list[str]) -> dict[str, Any]:
    kinds = list(zip(tokens, types, strict=True))
    last = max(index for index, kind in enumerate(types) if kind == _NORMAL)
    added = [
        {
            "id": index,
            "content": token,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
            "special": kind != _USER_DEFINED,
        }
        for index, (token, kind) in enumerate(kinds)
        if kind not in (_NORMAL, _UNUSED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if rule.nfc else None,
        "pre_tokenizer": pre_tokenizer(rule.expressions),
        "post_processor": None,
        "decoder": {**byte_level(), "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rule.ignore_merges,
            # The library numbers added tokens from the end of the vocabulary on, so lower ones stand in it.
            "vocab": {
                token: index
                for index, (token, kind) in enumerate(kinds)
                if kind == _NORMAL or (kind != _UNUSED and index < last)
            },
            "merges": merges,
        },
    }


def _settings(metadata: Metadata, tokens: list[str]) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by their part, and the chat template."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for part, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None and 0 <= index < len(tokens):
            settings[f"{part}_token"] = tokens[index]
    template = metadata.get("tokenizer.chat_template")
    return {**settings, "chat_template": template} if template else settings
