"""The tokenizer of published Dream runs, from the rank file that Qwen's vocabulary is published as.

Responsible for the merges that the ranks stand for, and for the tokenizer.json made of them. Not responsible
for fetching the rank file (see `wheel_files`).

A rank file lists tokens in the order in which they were learned. A token's merge is the pair of earlier
tokens that its bytes come down to when only earlier merges are applied, so the merges follow from the order.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from cloud_anchor.errors import CloudError
from cloud_anchor.model.prompt_form import qwen2_tokenizer
from common.files import write_whole
from edge_runtime.engine.prepack import cache_root
from lab.published.wheel_files import QWEN_RANKS, fetched

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Special tokens of Qwen2.5 and Dream that follow the vocabulary."""


def published_tokenizer(beside: Path) -> Path:
    """Dream's tokenizer file: `beside` where it is there, else made of fetched ranks. Raises CloudError."""
    if beside.is_file():
        return beside
    return tokenizer_of_ranks(fetched(QWEN_RANKS), cache_root() / "qwen2.5_tokenizer.json")


def tokenizer_of_ranks(path: Path, target: Path) -> Path:
    """Writes the tokenizer.json of a rank file (base64 and rank, one token a line) where it is not there yet.

    Raises CloudError for another file.
    """
    if target.is_file():
        return target
    ranks: dict[bytes, int] = {}
    try:
        for line in path.read_bytes().splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    except (OSError, ValueError) as error:
        raise CloudError(
            f"{path}: expected lines of a token in base64 and its rank, found: {error}"
        ) from None
    text = json.dumps(tokenizer_of(ranks), ensure_ascii=False)
    write_whole(target, text.encode("utf-8"))
    return target


def tokenizer_of(ranks: Mapping[bytes, int]) -> dict[str, Any]:
    """The content of tokenizer.json for ranks that hold all 256 bytes."""
    letters = bytes_to_unicode()

    def piece(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    ordered = sorted(ranks.items(), key=lambda pair: pair[1])
    merges = [" ".join(map(piece, parts(token, ranks, rank))) for token, rank in ordered if len(token) > 1]
    added = [
        {"id": len(ranks) + index, "content": name, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for index, name in enumerate(SPECIAL)
    ]
    return qwen2_tokenizer({piece(token): rank for token, rank in ordered}, merges, added)


def parts(token: bytes, ranks: Mapping[bytes, int], below: int) -> list[bytes]:
    """What a token's bytes come down to by merges into tokens of a rank lower than `below`."""
    found = [bytes([byte]) for byte in token]
    while len(found) > 1:
        pairs = [ranks.get(found[i] + found[i + 1], below) for i in range(len(found) - 1)]
        best = min(pairs)
        if best >= below:
            return found
        at = pairs.index(best)
        found[at : at + 2] = [found[at] + found[at + 1]]
    return found
