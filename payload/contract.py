"""The contract: the identity that both sides of a payload must share.

Responsible for identifying a vocabulary, its shared special ids and a chat template by hash. Not responsible
for tokenising or for rendering a template.

Dream-7B and Qwen2.5-0.5B share a contract although Dream adds a mask token and other special tokens: the hash
covers the base vocabulary and its merges, and only the three special tokens that both use. The chat template
is hashed in its compiled form (see `edge_runtime.text.chat`), so that two Jinja texts that render alike are
equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from payload.errors import ContractMismatchError

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
SHARED_SPECIALS = (END_OF_TEXT, IM_START, IM_END)


def _digest(value: object) -> str:
    """SHA-256, in hex, of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class Contract:
    """The vocabulary, special tokens and chat template that the writer and the reader of a payload share.

    vocab_size: number of ordinary tokens; an anchor id lies in [0, vocab_size).
    vocab_hash: SHA-256 (hex) of the base vocabulary and merges.
    special:    ids of the special tokens both sides use, by their text.
    template_hash: SHA-256 (hex) of the compiled chat template.
    """

    vocab_size: int
    vocab_hash: str
    special: Mapping[str, int]
    template_hash: str

    @classmethod
    def of(cls, tokenizer: Mapping[str, Any], template: Mapping[str, Any]) -> Contract:
        """The contract of a parsed `tokenizer.json` and a compiled chat template.

        Raises ContractMismatchError for a tokenizer without the shared special tokens.
        """
        model = tokenizer["model"]
        vocab: dict[str, int] = model["vocab"]
        merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
        added = {t["content"]: int(t["id"]) for t in tokenizer["added_tokens"]}
        missing = [name for name in SHARED_SPECIALS if name not in added]
        if missing:
            raise ContractMismatchError(
                f"tokenizer has no special token {missing[0]!r}: expected a Qwen2-style tokenizer with "
                f"{', '.join(SHARED_SPECIALS)}; found {sorted(added)[:8]}. "
                "Use a model of the Qwen2 vocabulary family."
            )
        base = {t: i for t, i in vocab.items() if t not in added}
        return cls(
            vocab_size=len(base),
            vocab_hash=_digest([sorted(base.items(), key=lambda item: item[1]), merges]),
            special={name: added[name] for name in SHARED_SPECIALS},
            template_hash=_digest(template),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Contract:
        return cls(
            int(data["vocab_size"]),
            str(data["vocab_hash"]),
            {str(k): int(v) for k, v in data["special"].items()},
            str(data["template_hash"]),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "vocab_size": self.vocab_size,
            "vocab_hash": self.vocab_hash,
            "special": dict(self.special),
            "template_hash": self.template_hash,
        }

    @cached_property
    def identity(self) -> str:
        """SHA-256 (hex) of the whole contract. Its first bytes are the tag a payload carries."""
        return _digest(self.to_json())

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an answer: `<|endoftext|>` and `<|im_end|>`."""
        return frozenset({self.special[END_OF_TEXT], self.special[IM_END]})

    def __str__(self) -> str:
        vocabulary = f"vocabulary {self.vocab_hash[:8]} of {self.vocab_size}"
        return f"{self.identity[:12]} ({vocabulary}, template {self.template_hash[:8]})"
