"""A second reader of "Prompt ids" in payload/SPEC.md: a plain search for merges, without the library."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import regex


class SecondReader:
    """Ids of conversations, from a parsed tokenizer.json and a compiled chat template."""

    def __init__(self, tokenizer: dict[str, Any], template: dict[str, Any]) -> None:
        model = tokenizer["model"]
        self.vocab, self.template = model["vocab"], template
        pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self.added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        self.normal = tokenizer["normalizer"] is not None
        steps = tokenizer["pre_tokenizer"]["pretokenizers"]
        self.split = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self.letters = {byte: chr(byte) for byte in printable}
        self.letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}

    def ids(self, messages: Sequence[dict[str, str]]) -> list[int]:
        parts = [(str(self.template.get("start", "")), True)]
        default = self.template["default_system"]
        if default is not None and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": default}, *messages]
        for message in messages:
            before, after = self.template[message["role"]]
            parts += [(before, True), (message["content"], False), (after, True)]
        parts.append((self.template["generation"], True))
        names = "|".join(regex.escape(name) for name in sorted(self.added, key=len, reverse=True))
        ids: list[int] = []
        ordinary = ""
        for text, with_names in parts:
            for piece in regex.split(f"({names})", text) if with_names else [text]:
                if with_names and piece in self.added:
                    ids += [*self._ordinary(ordinary), self.added[piece]]
                    ordinary = ""
                else:
                    ordinary += piece
        return ids + self._ordinary(ordinary)

    def _ordinary(self, text: str) -> list[int]:
        pieces = [unicodedata.normalize("NFC", text) if self.normal else text]
        for pattern in self.split:
            pieces = [part for piece in pieces for part in regex.split(f"({pattern})", piece) if part]
        return [id_ for piece in pieces for id_ in self._merged(piece)]

    def _merged(self, piece: str) -> list[int]:
        word = [self.letters[byte] for byte in piece.encode("utf-8")]
        while len(word) > 1:
            found = [(self.ranks[pair], at) for at, pair in enumerate(pairwise(word)) if pair in self.ranks]
            if not found:
                break
            _, at = min(found)
            word[at : at + 2] = [word[at] + word[at + 1]]
        return [self.vocab[token] for token in word]
