"""A model of hashes, which needs no weights, and a contract for it.

Its logits depend on every token before them and on nothing else, like a causal model's.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from edge_runtime.engine.base import Engine, Logits
from payload import AnchorSet, Contract

VOCAB = 12
SPECIAL = {"<|endoftext|>": VOCAB, "<|im_start|>": VOCAB + 1, "<|im_end|>": VOCAB + 2}
CONTRACT = Contract(VOCAB, "0" * 64, SPECIAL, "1" * 64)


def hash_logits(prefix: Sequence[int], seed: int = 0, vocab: int = VOCAB + 3) -> Logits:
    """float32[vocab] logits after a prefix; the vocabulary is small, so that end tokens do come up."""
    state = zlib.crc32(np.asarray([seed, *prefix], dtype=np.int64).tobytes())
    logits = np.random.default_rng(state).standard_normal(vocab) * 2
    return logits.astype(np.float32)


class HashEngine(Engine):
    """A model whose logits are `hash_logits`; records every pass."""

    def __init__(self, seed: int = 0, context: int = 4096, vocab: int = VOCAB + 3) -> None:
        super().__init__(context=context, vocab=vocab)
        self.seed = seed
        self.passes: list[tuple[int, int]] = []  # (tokens, rows) of each pass

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        self.passes.append((len(ids), len(rows)))
        text = [*self.tokens, *ids]
        wanted = [hash_logits(text[: self.length + row + 1], self.seed, self.vocab) for row in rows]
        return np.stack(wanted) if wanted else np.empty((0, self.vocab), np.float32)


def anchors_of(places: dict[int, int], canvas: int = 64, **fields: Any) -> AnchorSet:
    """Anchors by position, for that contract."""
    return AnchorSet.of(places, canvas, CONTRACT, **fields)
