"""What forced decoding needs of a model: run known tokens, forget some.

Knows the interface, and the bookkeeping that every engine shares. Does not know any particular runtime
(see `ort_engine`), and nothing above it knows one either.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_runtime.errors import ContextError, EngineError

Logits = NDArray[np.float32]


class Engine(Protocol):
    """A causal language model with a cache of the tokens it has seen."""

    @property
    def tokens(self) -> Sequence[int]:
        """The ids the cache holds, oldest first. Not to be changed by the caller."""

    @property
    def length(self) -> int:
        """Number of tokens the cache holds."""

    @property
    def context(self) -> int:
        """Most tokens the cache can hold."""

    def append(self, ids: Sequence[int], logits_for: Sequence[int] = ()) -> Logits:
        """Runs a chunk of known tokens in one pass, after what the cache holds.

        logits_for: which of the chunk's rows give logits, ascending; row i predicts the token after ids[i].
        Returns float32[len(logits_for), vocab], valid until the next call. Raises ContextError where the
        chunk does not fit, EngineError where an id or a row is out of range or the model fails; then, and
        where it is interrupted, the cache holds what it held before.
        """

    def rewind(self, length: int) -> None:
        """Forgets everything past `length` tokens; copies nothing."""


class BaseEngine(ABC):
    """Keeps the ids of the cache and checks the arguments; a subclass runs the model."""

    def __init__(self, *, context: int, vocab: int) -> None:
        self._context = context
        self._vocab = vocab
        self._tokens: list[int] = []

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def context(self) -> int:
        return self._context

    @property
    def vocab(self) -> int:
        """Number of logits in a row."""
        return self._vocab

    def append(self, ids: Sequence[int], logits_for: Sequence[int] = ()) -> Logits:
        if not ids:
            raise EngineError("append: expected at least one token id, found none")
        if self.length + len(ids) > self._context:
            raise ContextError(
                f"expected at most {self._context} tokens, found {self.length} cached and {len(ids)} more. "
                "Shorten the prompt or raise the context."
            )
        if not 0 <= min(ids) <= max(ids) < self._vocab:
            raise EngineError(
                f"append: expected token ids from 0 to {self._vocab - 1}, found {min(ids)} to {max(ids)}. "
                "The tokenizer and the model do not belong together."
            )
        if logits_for and not 0 <= min(logits_for) <= max(logits_for) < len(ids):
            raise EngineError(f"append: expected rows from 0 to {len(ids) - 1}, found {list(logits_for)}")
        logits = self._run(ids, logits_for)
        self._tokens.extend(ids)
        return logits

    def rewind(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise EngineError(f"rewind: expected a length from 0 to {self.length}, found {length}")
        del self._tokens[length:]

    @abstractmethod
    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        """One pass over `ids` after the first `self.length` tokens: float32[len(rows), vocab]."""


def log_total(logits: Logits) -> float:
    """log(sum(exp(logits))) of float32[vocab]: what a logit is lowered by to be a natural log-probability.

    Raises EngineError where that is not a number.
    """
    top = float(logits.max())
    total = float(np.exp(logits - top).sum(dtype=np.float64))
    value = top + math.log(total) if total > 0 else math.nan
    if math.isnan(value):
        raise EngineError("the model's logits are not numbers: expected finite values. Use another variant.")
    return value
