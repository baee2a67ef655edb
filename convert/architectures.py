"""Checkpoints of other architectures: the error that refuses them.

Responsible for saying whether such a checkpoint shares the vocabulary of Qwen2.5, to which Dream's anchors
belong. Not responsible for checkpoints that can be converted (see `source`).
"""

from __future__ import annotations

import json
from pathlib import Path

from convert.errors import ArchitectureError
from convert.source import SUPPORTED
from payload import Contract, PayloadError

QWEN25_VOCAB_SIZE = 151_643
QWEN25_VOCAB_HASH = "64342ea5b10b184bf254403174c97a34735caaac4c9d4cae7bcba96626612f29"
"""`Contract.vocab_hash` of the tokenizer that Qwen2.5, Qwen3 and Dream share."""


def foreign_architecture(folder: Path, architecture: str) -> ArchitectureError:
    """The error for a checkpoint of another architecture; it says whether the vocabulary would fit."""
    return ArchitectureError(
        f"{folder}: expected architecture {SUPPORTED}, found {architecture}. {_vocabulary(folder)} "
        "Use a checkpoint of the Qwen2 or Qwen2.5 family, such as Qwen/Qwen2.5-0.5B-Instruct."
    )


def _vocabulary(folder: Path) -> str:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "It has no tokenizer.json to compare vocabularies with."
    expected = f"Qwen2.5's {QWEN25_VOCAB_SIZE} tokens ({QWEN25_VOCAB_HASH[:8]})"
    try:
        contract = Contract.of(json.loads(path.read_text(encoding="utf-8")), {})
    except PayloadError as error:
        return f"Its vocabulary differs too, so anchors would be other words to it: {error}"
    except (ValueError, KeyError, TypeError):
        return f"Its tokenizer is not byte-level BPE with a vocabulary and merges, unlike {expected}."
    found = f"{contract.vocab_size} tokens ({contract.vocab_hash[:8]})"
    if contract.vocab_hash == QWEN25_VOCAB_HASH:
        return (
            f"Its vocabulary is the same, {found}, so anchors would fit its ids; but its layers are others, "
            "and a payload also needs the same chat template."
        )
    return (
        "Its vocabulary differs too, so anchors would be other words to it: "
        f"expected {expected}, found {found}."
    )
