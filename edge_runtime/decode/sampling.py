"""How the model's tokens are chosen: the likeliest, or drawn with temperature and top-p.

Not responsible for which tokens may stand at a position (see `forced`, `constrained`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_runtime.engine.base import Logits
from edge_runtime.errors import EngineError, UsageError


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    temperature: 0 takes the likeliest token, as without sampling; logits are divided by any other.
    top_p:       None, or the mass that the shortest leading run of tokens has to exceed; the others are not
                 drawn (Holtzman et al., arXiv 1904.09751).
    seed:        of the answer's random numbers.
    """

    temperature: float = 1.0
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"temperature: expected a number from 0, found {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p: expected above 0, at most 1, found {self.top_p}")
        if self.seed < 0:
            raise UsageError(f"seed: expected a number from 0, found {self.seed}")


class Sampler:
    """Chooses the tokens of one answer. greedy: always the likeliest."""

    def __init__(self, sampling: Sampling | None) -> None:
        self._sampling = sampling or Sampling(temperature=0.0)
        self.greedy = not self._sampling.temperature
        self._random = np.random.default_rng(self._sampling.seed)

    def token(self, logits: Logits) -> int:
        """A token for float32[vocab] logits, never one of minus infinity.

        Raises EngineError for logits that are not numbers, where it draws.
        """
        if self.greedy:
            return int(logits.argmax())
        mass = distribution(logits, self._sampling).cumsum()
        return int(mass.searchsorted(self._random.random() * mass[-1], side="right"))


def distribution(logits: Logits, sampling: Sampling) -> NDArray[np.float64]:
    """softmax(logits / temperature) of float32[vocab], cut to its nucleus and normalised again; the
    temperature is above 0. Raises EngineError for logits that are not numbers.
    """
    top = float(logits.max())
    if not np.isfinite(top):
        raise EngineError("the model's logits are not numbers: expected finite values. Use another variant.")
    shares = np.exp((logits.astype(np.float64) - top) / sampling.temperature)
    shares /= shares.sum()
    if sampling.top_p is not None and sampling.top_p < 1:
        order = np.argsort(-shares, kind="stable")
        mass = shares[order].cumsum()
        shares[order[1:][mass[:-1] > sampling.top_p]] = 0
        shares /= shares.sum()
    return shares


def without(logits: Logits, ids: list[int]) -> Logits:
    """A copy of float32[vocab] logits, minus infinity for some ids."""
    held = logits.copy()
    held[ids] = -np.inf
    return held
