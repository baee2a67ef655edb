"""Where vocabularies split text before merging: the expressions that a device runs, and no others.

Responsible for that list, and for refusing a tokenizer.json with another one. The files of a bundle may be a
stranger's, and a regular expression is a program: `(a+)+$` keeps Java and JavaScript busy for seconds on 30
letters, and stops the tokenizers library. The Kotlin and TypeScript runtimes have the same list; a file of
vectors keeps the three alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edge_runtime.errors import BundleSchemaError

_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_FIRST = r"[^\r\n\p{L}\p{N}]?"
_MARKS, _SPACES = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(suffix: str, numbers: str) -> str:
    """Words of capitals and small letters, with what follows an apostrophe."""
    word = rf"{_FIRST}{_UPPER}*{_LOWER}+{suffix}|{_FIRST}{_UPPER}+{_LOWER}*{suffix}"
    return rf"{word}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_SPACES}"


SPLITS = {
    "digits": r"\p{N}",
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": rf"{_SUFFIX}|{_FIRST}\p{{L}}+|\p{{N}}|{_MARKS}{_SPACES}",
    "qwen3.5": rf"{_SUFFIX}|{_FIRST}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*{_SPACES}",
    "llama3": rf"{_SUFFIX}|{_FIRST}\p{{L}}+|\p{{N}}{{1,3}}|{_MARKS}{_SPACES}",
    "gpt-4o": _cased(f"{_SUFFIX}?", r"\p{N}{1,3}"),
    "tekken": _cased("", r"\p{N}"),
    "shipped": rf"{_SUFFIX}|{_FIRST}\p{{L}}+| ?\p{{N}}{{1,2}}|{_MARKS}{_SPACES}",
}
"""By the vocabulary that had it first, as in tokenizer.json; `shipped`: of the pairs trained here."""


def pre_tokenizer(expressions: Sequence[str]) -> dict[str, Any]:
    """The `pre_tokenizer` of a tokenizer.json: split by each expression in turn, then to bytes."""
    splits = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level()]}


def byte_level() -> dict[str, Any]:
    """The step that writes each byte as a character, without a split of its own."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def require_known(document: Any) -> None:
    """Raises BundleSchemaError for a parsed tokenizer.json with an expression that is not in `SPLITS`."""
    steps = [document.get(name) for name in ("normalizer", "pre_tokenizer", "decoder", "post_processor")]
    for found in _expressions(steps):
        if found not in SPLITS.values():
            raise BundleSchemaError(
                f"tokenizer: expected a split of {', '.join(SPLITS)}, found the expression {found!r:.80}. "
                "Use a model with a vocabulary of one of these families."
            )


def _expressions(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if "Regex" in value:
            yield value["Regex"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _expressions(each)
