"""The contract: the identity that both sides of a payload must share.

Responsible for identifying a vocabulary, its special ids and a chat template by hash. Not responsible for
tokenising or for rendering a template.

Dream-7B and Qwen2.5-0.5B share a contract although Dream adds a mask token and other special tokens: the hash
covers the base vocabulary and its merges, and only the three special tokens that both use. The chat template
is hashed in its compiled form (see `edge_runtime.text.chat`), so that two Jinja texts that render alike are
equal.

Other vocabularies have other markers, and some have them below the ordinary ids (SmolLM2: 0 to 16). Their
contract names the tokens that end an answer (`ends`) and every special token whose id lies among the ordinary
ones; a contract of the Qwen2 kind has no such field.

Its JSON states how messages become prompt ids (`contents`), for which there is one rule so far: they become
ordinary tokens, whatever names of special tokens they have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from payload.errors import ContractMismatchError

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
SHARED_SPECIALS = (END_OF_TEXT, IM_START, IM_END)
_CONTENTS = "plain"


def _digest(value: object) -> str:
    """SHA-256, in hex, of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class Contract:
    """The vocabulary, special tokens and chat template that the writer and the reader of a payload share.

    vocab_size: upper bound of anchor ids: they lie in [0, vocab_size) and are none of `special`.
    vocab_hash: SHA-256 (hex) of the base vocabulary and merges.
    special:    ids of special tokens by their text: those both sides use, and all below vocab_size.
    template_hash: SHA-256 (hex) of the compiled chat template.
    ends:       the names in `special` that end an answer; None for END_OF_TEXT and IM_END.
    """

    vocab_size: int
    vocab_hash: str
    special: Mapping[str, int]
    template_hash: str
    ends: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        missing = [name for name in self.end_names if name not in self.special]
        if missing:
            raise ContractMismatchError(
                f"contract: expected an id of {missing[0]!r}, which ends an answer, among the special ones, "
                f"found {sorted(self.special)[:8]}. Convert the model again."
            )

    @classmethod
    def of(
        cls, tokenizer: Mapping[str, Any], template: Mapping[str, Any], ends: Sequence[str] = ()
    ) -> Contract:
        """The contract of a parsed `tokenizer.json` and a compiled chat template.

        ends: texts of special tokens that end an answer, besides the one that the template puts after it.

        Raises ContractMismatchError for a tokenizer without such a token.
        """
        model = tokenizer["model"]
        vocab: dict[str, int] = model["vocab"]
        merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        added = {
            t["content"]: int(t["id"])
            for t in tokenizer["added_tokens"]
            # SentencePiece's symbols of the user are text, as any token.
            if t.get("special", True) or not model.get("byte_fallback") or vocab.get(t["content"]) != t["id"]
        }
        base = sorted(((t, i) for t, i in vocab.items() if t not in added), key=lambda item: item[1])
        vocab_size = base[-1][1] + 1 if base else 0
        vocab_hash, template_hash = _digest([base, merges]), _digest(template)
        if (
            vocab_size == len(base)
            and all(name in added for name in SHARED_SPECIALS)
            and set(ends) <= {END_OF_TEXT, IM_END}
        ):
            special = {name: added[name] for name in SHARED_SPECIALS}
            return cls(vocab_size, vocab_hash, special, template_hash)
        stops = _ends(added, template, ends)
        texts = _texts(template)
        special = {
            name: id_
            for name, id_ in sorted(added.items(), key=lambda item: item[1])
            if id_ < vocab_size or name in stops or any(name in text for text in texts)
        }
        return cls(vocab_size, vocab_hash, special, template_hash, stops)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Contract:
        """Reads the fields; raises ContractMismatchError where an end has no id, or contents are unknown."""
        if data.get("contents") != _CONTENTS:
            raise ContractMismatchError(
                f"contract: expected contents {_CONTENTS!r}, found {data.get('contents')!r:.40}. "
                "Update this software."
            )
        ends = data.get("ends")
        return cls(
            int(data["vocab_size"]),
            str(data["vocab_hash"]),
            {str(k): int(v) for k, v in data["special"].items()},
            str(data["template_hash"]),
            None if ends is None else tuple(str(name) for name in ends),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "vocab_size": self.vocab_size,
            "vocab_hash": self.vocab_hash,
            "special": dict(self.special),
            "template_hash": self.template_hash,
            "contents": _CONTENTS,
            **({} if self.ends is None else {"ends": list(self.ends)}),
        }

    @cached_property
    def identity(self) -> str:
        """SHA-256 (hex) of the whole contract. Its first bytes are the tag a payload carries."""
        return _digest(self.to_json())

    @cached_property
    def tag(self) -> str:
        """The first 2 hex digits of the identity."""
        return self.identity[:2]

    @property
    def end_names(self) -> tuple[str, ...]:
        """Texts of the tokens that end an answer: `ends`, or `<|endoftext|>` and `<|im_end|>`."""
        return (END_OF_TEXT, IM_END) if self.ends is None else self.ends

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids of the tokens that end an answer."""
        return frozenset(self.special[name] for name in self.end_names)

    @cached_property
    def reserved(self) -> frozenset[int]:
        """Special ids below vocab_size, which no anchor can have; empty for the Qwen2 vocabulary family."""
        return frozenset(id_ for id_ in self.special.values() if id_ < self.vocab_size)

    def is_ordinary(self, id: int) -> bool:
        """True for an id that an anchor may have."""
        return 0 <= id < self.vocab_size and id not in self.reserved

    def same_vocabulary(self, other: Contract) -> bool:
        """True where token ids mean the same under both; their chat templates may differ."""
        shared = self.special.keys() & other.special.keys()
        return self.vocab_hash == other.vocab_hash and all(
            self.special[name] == other.special[name] for name in shared
        )

    def __str__(self) -> str:
        vocabulary = f"vocabulary {self.vocab_hash[:8]} of {self.vocab_size}"
        return f"{self.identity[:12]} ({vocabulary}, template {self.template_hash[:8]})"


def _texts(template: Mapping[str, Any]) -> list[str]:
    """The texts of a compiled chat template."""
    return [
        text
        for value in template.values()
        for text in ([value] if isinstance(value, str) else value or [])
        if isinstance(text, str)
    ]


def _ends(added: Mapping[str, int], template: Mapping[str, Any], named: Sequence[str]) -> tuple[str, ...]:
    """Texts of the tokens that end an answer: the one after it in the template, then those named."""
    after = str((template.get("assistant") or ("", ""))[1]).lstrip()
    first = max((name for name in added if name and after.startswith(name)), key=len, default=None)
    stops = tuple(dict.fromkeys([*([first] if first else []), *named]))
    unknown = [name for name in stops if name not in added]
    if unknown or not stops:
        what = repr(unknown[0]) if unknown else "that ends an answer"
        raise ContractMismatchError(
            f"tokenizer has no special token {what}: expected one among its added tokens, found "
            f"{sorted(added)[:8]}. Give the tokenizer and the chat template of one model."
        )
    return stops
