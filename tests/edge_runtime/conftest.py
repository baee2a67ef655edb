"""What the edge's tests share: a model of hashes that needs no weights, and a contract for it.

The fake engine's logits depend on every token before them and on nothing else, like a causal model's.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from edge_runtime.engine import BaseEngine, Logits
from payload import AnchorSet, Contract

VOCAB = 12
SPECIAL = {"<|endoftext|>": VOCAB, "<|im_start|>": VOCAB + 1, "<|im_end|>": VOCAB + 2}
CONTRACT = Contract(VOCAB, "0" * 64, SPECIAL, "1" * 64)


def hash_logits(prefix: Sequence[int], seed: int = 0) -> Logits:
    """float32[VOCAB + 3] logits after a prefix: a small vocabulary, so that end tokens do come up."""
    state = zlib.crc32(np.asarray([seed, *prefix], dtype=np.int64).tobytes())
    logits = np.random.default_rng(state).standard_normal(VOCAB + 3) * 2
    return logits.astype(np.float32)


class HashEngine(BaseEngine):
    """A model whose logits are `hash_logits`; notes every pass it makes."""

    def __init__(self, *, context: int = 4096, seed: int = 0) -> None:
        super().__init__(context=context, vocab=VOCAB + 3)
        self.seed = seed
        self.passes: list[tuple[int, int]] = []  # (tokens, rows) of each pass

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        self.passes.append((len(ids), len(rows)))
        text = [*self.tokens, *ids]
        wanted = [hash_logits(text[: self.length + row + 1], self.seed) for row in rows]
        return np.stack(wanted) if wanted else np.empty((0, self.vocab), np.float32)


@pytest.fixture(scope="session")
def contract() -> Contract:
    return CONTRACT


@pytest.fixture
def engine() -> HashEngine:
    return HashEngine()


@pytest.fixture(scope="session")
def make_engine() -> Callable[..., HashEngine]:
    return HashEngine


@pytest.fixture(scope="session")
def logits_after() -> Callable[..., Logits]:
    return hash_logits


@pytest.fixture(scope="session")
def make_anchors() -> Callable[..., AnchorSet]:
    """make_anchors({position: id}, canvas=..., length=...) for the fake engine's contract."""

    def make(places: dict[int, int], canvas: int = 64, **fields: Any) -> AnchorSet:
        positions = tuple(sorted(places))
        return AnchorSet(positions, tuple(places[p] for p in positions), canvas, CONTRACT, **fields)

    return make
