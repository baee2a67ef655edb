"""A model without weights for codec predictive: rows made from a hash of everything before them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np


class HashPredictor:
    """Rows that depend on prompt and text alone, some sure and some flat, some with near ties.

    noise: at most so far off is each log-probability; it depends on the text too. seed: another model.
    """

    def __init__(
        self, vocab_size: int, prompt_ids: Sequence[int] = (), noise: float = 0.0, seed: int = 0
    ) -> None:
        self.vocab_size = vocab_size
        self.prompt_ids = list(prompt_ids)
        self.noise = noise
        self.seed = seed
        self.identity = hashlib.sha256(b"model").digest()
        self.passes = self.rows = 0

    def read(self, text: Sequence[int], start: int) -> Iterator[np.ndarray]:
        self.passes += 1
        for position in range(start, len(text) + 1):
            self.rows += 1
            yield self.row(text[:position])

    def row(self, before: Sequence[int]) -> np.ndarray:
        key = np.asarray([self.seed, len(self.prompt_ids), *self.prompt_ids, *before], np.int64).tobytes()
        luck = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()[:8], "little"))
        scores = luck.standard_normal(self.vocab_size + 1) * luck.choice([0.05, 1.0, 4.0])
        scores[luck.integers(self.vocab_size)] += luck.choice([0.0, 4.0, 12.0])
        if self.noise:
            other = np.random.default_rng(len(before) + 1)
            scores += other.uniform(-self.noise / 2, self.noise / 2, len(scores))
        return scores - np.logaddexp.reduce(scores)
