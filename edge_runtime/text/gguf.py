"""The metadata of a GGUF file, and its tokenizer in the form of a checkpoint folder's files.

Responsible for byte-level BPE vocabularies ("gpt2" in the file) whose way to split text has a known name, for
those of SentencePiece's BPE with a token for every byte ("llama", as of Gemma), and for files that hold their
tokenizer.json whole. Not responsible for weights, nor for checking the result (see `tokenizer`).
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_runtime.errors import GgufError
from edge_runtime.text.splits import SPLITS, byte_level, pre_tokenizer

SUFFIX = ".gguf"

Metadata = Mapping[str, Any]
"""The values of a GGUF file by their key."""

WHOLE_TOKENIZER = "tokenizer.huggingface.json"
"""The key of a whole tokenizer.json: of a vocabulary that splits text in a way without a name."""

_MAGIC, _VERSIONS, _STRING, _ARRAY = b"GGUF", (2, 3), 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Formats of `struct` by the type's number in the file."""

PLAIN = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
"""Of a tokenizer.json: what no vocabulary here has."""

_NORMAL, _USER_DEFINED, _UNUSED, _BYTE = 1, 4, 5, 6
_SPACE = "\u2581"
"""What SentencePiece writes for a space."""


@dataclass(frozen=True)
class SplitRule:
    """How a vocabulary splits text before merging: expressions applied in turn, after NFC where it is set.

    ignore_merges: a piece that is a token as a whole is that token, whatever the merges would give.
    """

    expressions: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False


RULES = {
    "gpt-2": SplitRule((SPLITS["gpt2"],)),
    "smollm": SplitRule((SPLITS["digits"], SPLITS["gpt2"])),
    "qwen2": SplitRule((SPLITS["qwen2"],), nfc=True),
    # LLaDA's. Its own expression ends in \s*[\r\n] and has possessive quantifiers: the pieces are the same.
    "bailingmoe": SplitRule((SPLITS["qwen2"],)),
    "llama-bpe": SplitRule((SPLITS["llama3"],), ignore_merges=True),
}
"""By the name in the file (tokenizer.ggml.pre)."""


def read_metadata(path: Path) -> Metadata:
    """The values of a file; its weights are not read. Raises GgufError for what is no whole GGUF file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            magic, version, _, count = _unpacked(data, 0, "4sIQQ")
            if magic != _MAGIC or version not in _VERSIONS:
                raise GgufError(
                    f"{path}: expected a GGUF file of version {' or '.join(map(str, _VERSIONS))}, found "
                    f"{magic!r} and version {version}. Fetch it again, or another file of the model."
                )
            at, values = 24, {}
            for _ in range(count):
                key, at = _value(data, at, _STRING)
                values[key], at = _value(data, at + 4, *_unpacked(data, at, "I"))
            return values
    except OSError as error:
        raise GgufError(f"{path}: expected a readable file, found: {error.strerror or error}.") from error
    except (struct.error, ValueError, OverflowError, KeyError, RecursionError) as error:
        raise GgufError(
            f"{path}: expected a whole GGUF file, found: {error}. "
            "The file is damaged or its download was interrupted: fetch it again."
        ) from error


def _unpacked(data: mmap.mmap, at: int, form: str) -> tuple[Any, ...]:
    return struct.unpack_from("<" + form, data, at)


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    """The value of a type at a place, and the place behind it."""
    if kind == _STRING:
        (size,) = _unpacked(data, at, "Q")
        text = data[at + 8 : at + 8 + size]
        if len(text) != size:
            raise ValueError(f"{len(text)} of {size} bytes of a text at byte {at}")
        return text.decode("utf-8", "replace"), at + 8 + size
    if kind != _ARRAY:
        form = _NUMBERS[kind]
        return _unpacked(data, at, form)[0], at + struct.calcsize(form)
    kind, count = _unpacked(data, at, "IQ")
    at += 12
    if kind in _NUMBERS:
        form = f"{count}{_NUMBERS[kind]}"
        return list(_unpacked(data, at, form)), at + struct.calcsize("<" + form)
    values = []
    for _ in range(count):
        value, at = _value(data, at, kind)
        values.append(value)
    return values, at


def tokenizer_files(metadata: Metadata, where: str) -> dict[str, dict[str, Any]]:
    """The content of tokenizer.json and tokenizer_config.json, by file name; where: the file, for messages.

    Raises GgufError for a vocabulary of another kind.
    """
    if WHOLE_TOKENIZER in metadata:
        return _whole_files(metadata, where)
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind == "llama":
        return _sentencepiece_files(metadata, where)
    if kind != "gpt2" or split not in RULES:
        raise GgufError(
            f"{where}: expected a byte-level tokenizer (gpt2) that splits text like {', '.join(RULES)}, "
            f"found {kind!r} with {split!r}."
        )
    tokens = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens or ())
    merges = metadata.get("tokenizer.ggml.merges")
    if not tokens or not merges or len(types) != len(tokens) or _NORMAL not in types:
        raise GgufError(
            f"{where}: expected tokens, types and merges, found {len(tokens or ())} tokens, "
            f"{len(types)} types, {list(types).count(_NORMAL)} of them normal, {len(merges or ())} merges."
        )
    rule = RULES[split]
    kinds = list(zip(tokens, types, strict=True))
    last = max(index for index, kind in enumerate(types) if kind == _NORMAL)
    # The library numbers added tokens from the end of the vocabulary on, so lower ones stand in it.
    vocab = {
        token: index
        for index, (token, kind) in enumerate(kinds)
        if kind == _NORMAL or (kind != _UNUSED and index < last)
    }
    tokenizer = {
        "added_tokens": [
            _added(index, token, special=kind != _USER_DEFINED)
            for index, (token, kind) in enumerate(kinds)
            if kind not in (_NORMAL, _UNUSED)
        ],
        "normalizer": {"type": "NFC"} if rule.nfc else None,
        "pre_tokenizer": pre_tokenizer(rule.expressions),
        "decoder": {**byte_level(), "trim_offsets": True, "use_regex": True},
        "model": bpe(vocab, merges, ignore_merges=rule.ignore_merges),
    }
    return _files(tokenizer, metadata, tokens)


def _whole_files(metadata: Metadata, where: str) -> dict[str, dict[str, Any]]:
    """The files of a tokenizer that is in the file as its text."""
    try:
        tokenizer = json.loads(metadata[WHOLE_TOKENIZER])
        tokens = {id_: token for token, id_ in tokenizer["model"]["vocab"].items()}
        tokens |= {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise GgufError(
            f"{where}: expected a tokenizer.json in {WHOLE_TOKENIZER}, found: {error}."
        ) from error
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": _settings(metadata, tokens)}


def _sentencepiece_files(metadata: Metadata, where: str) -> dict[str, dict[str, Any]]:
    """The files of a SentencePiece vocabulary that puts no space before a text.

    Raises GgufError for one that does, or that lacks the token of some byte.
    """
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    types = metadata.get("tokenizer.ggml.token_type") or []
    scores = metadata.get("tokenizer.ggml.scores") or []
    if not tokens or not len(tokens) == len(types) == len(scores) or types.count(_BYTE) != 256:
        raise GgufError(
            f"{where}: expected tokens with their types and scores and a token for each of 256 bytes, found "
            f"{len(tokens)}, {len(types)}, {len(scores)} and {types.count(_BYTE)}."
        )
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        raise GgufError(
            f"{where}: expected a vocabulary that writes a text as it is (Gemma's), found one that puts a "
            "space before it (Llama 2's), whose tokens do not join to the text's bytes."
        )
    # A user's symbol is text, found before anything is merged, so it stands for real spaces.
    texts = [
        token.replace(_SPACE, " ") if kind == _USER_DEFINED else token
        for token, kind in zip(tokens, types, strict=True)
    ]
    normal = {
        token: score for token, kind, score in zip(tokens, types, scores, strict=True) if kind == _NORMAL
    }
    vocab = {token: index for index, token in enumerate(texts) if types[index] != _UNUSED}
    tokenizer = {
        "added_tokens": [
            _added(index, token, special=types[index] != _USER_DEFINED)
            for index, token in enumerate(texts)
            if types[index] not in (_NORMAL, _UNUSED, _BYTE)
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": bpe(vocab, _merges(normal, vocab), byte_fallback=True),
    }
    return _files(tokenizer, metadata, tokens)


def _merges(scores: Mapping[str, float], ids: Mapping[str, int]) -> list[list[str]]:
    """Every pair of tokens that joins to one, the best score first: the order in which SentencePiece merges.

    The pairs of one token follow each other by their ids.
    """
    pairs = [
        (-score, ids[token[:at]], ids[token[at:]])
        for token, score in scores.items()
        for at in range(1, len(token))
        if token[:at] in scores and token[at:] in scores
    ]
    names = {ids[token]: token for token in scores}
    return [[names[left], names[right]] for _, left, right in sorted(pairs)]


def end_ids(metadata: Metadata) -> list[int]:
    """Ids that end an answer: of text, of turn and of message, where the file has them."""
    keys = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
    return list(dict.fromkeys(int(metadata[key]) for key in keys if key in metadata))


def _files(tokenizer: Mapping[str, Any], metadata: Metadata, tokens: list[str]) -> dict[str, dict[str, Any]]:
    return {
        "tokenizer.json": {**PLAIN, **tokenizer},
        "tokenizer_config.json": _settings(metadata, dict(enumerate(tokens))),
    }


def _added(index: int, token: str, special: bool) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": token, **plain, "special": special}


def bpe(
    vocab: Mapping[str, int],
    merges: Sequence[Any],
    *,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """The model of a tokenizer.json."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": dict(vocab),
        "merges": list(merges),
    }


def _settings(metadata: Metadata, tokens: Mapping[int, str]) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by their part, and the chat template."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for part, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(index, int) and index in tokens:
            settings[f"{part}_token"] = tokens[index]
    template = metadata.get("tokenizer.chat_template")
    return {**settings, "chat_template": template} if template else settings
