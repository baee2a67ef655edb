"""Engine: the interface of a model to decoding, to run known tokens and to rewind.

Responsible for the interface, and for the bookkeeping that all engines share. Not responsible for any
particular runtime (see `ort_engine`); decoding depends on this class only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edge_runtime.engine.turns import Turns
from edge_runtime.errors import ContextError, EngineError

Logits = NDArray[np.float32]

MAX_CHUNK, MAX_ROWS = 512, 64
"""Most tokens and most rows of logits of one pass; they bound its memory."""


class Engine(ABC):
    """A causal language model with a KV cache of the tokens it has run.

    Keeps the ids of the cache and checks arguments; a subclass runs the model.

    context: most tokens of the cache. vocab: number of logits per row. turns: taken by every pass, and shared
    with all forks.
    """

    def __init__(self, *, context: int, vocab: int) -> None:
        self.context, self.vocab = context, vocab
        self.turns = Turns()
        self._tokens: list[int] = []

    @property
    def tokens(self) -> Sequence[int]:
        """The ids in the cache, oldest first; read-only for the caller."""
        return self._tokens

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return len(self._tokens)

    def append(self, ids: Sequence[int], logits_for: Sequence[int] = ()) -> Logits:
        """Runs a chunk of known tokens in one pass, after the tokens in the cache.

        logits_for: rows of the chunk whose logits are returned, ascending; row i predicts the token after
                    ids[i].

        Returns float32[len(logits_for), vocab], valid until the next call. Raises ContextError where the
        chunk does not fit, EngineError where an id or a row is out of range or the model fails. After an
        error or an interrupt the cache holds the same tokens as before.
        """
        if not ids:
            raise EngineError("append: expected at least one token id, found none")
        if self.length + len(ids) > self.context:
            raise ContextError(
                f"expected at most {self.context} tokens, found {self.length} cached and {len(ids)} more. "
                "Shorten the prompt or raise the context."
            )
        if not 0 <= min(ids) <= max(ids) < self.vocab:
            raise EngineError(
                f"append: expected token ids from 0 to {self.vocab - 1}, found {min(ids)} to {max(ids)}. "
                "The tokenizer and the model do not belong together."
            )
        if logits_for and not 0 <= min(logits_for) <= max(logits_for) < len(ids):
            raise EngineError(f"append: expected rows from 0 to {len(ids) - 1}, found {list(logits_for)}")
        with self.turns:
            logits = self._run(ids, logits_for)
        self._tokens.extend(ids)
        return logits

    def rewind(self, length: int) -> None:
        """Removes all but the first `length` tokens from the cache, without a copy."""
        if not 0 <= length <= self.length:
            raise EngineError(f"rewind: expected a length from 0 to {self.length}, found {length}")
        del self._tokens[length:]

    @contextmanager
    def lease(self, text: Sequence[int]) -> Generator[Engine]:
        """This engine, for one caller at a time; see `SharedModel.lease`."""
        yield self

    def fork(self, tokens: int = 0) -> Self:
        """Another cache over the same weights, which begins with the first `tokens` of this one, or none."""
        other = copy(self)
        other._tokens = self._tokens[:tokens]
        return other

    @property
    def cache_bytes(self) -> int:
        """Memory that the cache takes."""
        return 0

    @abstractmethod
    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        """One pass over `ids` after the first `self.length` tokens: float32[len(rows), vocab]."""


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    size = min(len(first), len(second))
    if first[:size] == second[:size]:
        return size
    return next(i for i in range(size) if first[i] != second[i])


def log_total(logits: Logits) -> float:
    """log(sum(exp(logits))) of float32[vocab]: a logit minus this is a natural log-probability.

    Raises EngineError where it is not a number.
    """
    top = float(logits.max())
    total = float(np.exp(logits - top).sum(dtype=np.float64))
    value = top + math.log(total) if total > 0 else math.nan
    if math.isnan(value):
        raise EngineError("the model's logits are not numbers: expected finite values. Use another variant.")
    return value
