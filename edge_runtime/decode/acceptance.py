"""Speculative acceptance: the token of a position, given the target's logits and what a drafter proposed.

Responsible for the rule that leaves the target's distribution unchanged whatever is drafted (Leviathan et
al., arXiv 2211.17192, section 2.3; algorithm 1 of SpecDiff, arXiv 2408.05636), and for temperature and top-p
of the target. Not responsible for making drafts (see `speculate`, `draft_model`) or for running the model
(see `forced`, which goes over a draft from left to right and stops at the first token that is not the
drafted one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge_runtime.engine.base import Logits
from edge_runtime.errors import EngineError, UsageError

Distribution = NDArray[np.float64]
"""float64[vocab], not negative, of sum 1."""


@dataclass(frozen=True)
class Sampling:
    """How the target's tokens are drawn; drafts do not change their distribution.

    temperature: 0 takes the likeliest token, as without sampling; logits are divided by any other.
    top_p:       None, or the mass that the shortest leading run of tokens has to exceed; the others are not
                 drawn (Holtzman et al., arXiv 1904.09751).
    seed:        of the answer's own generator. A drafter that draws must use another.
    """

    temperature: float = 1.0
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"temperature: expected a number from 0, found {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top-p: expected above 0, at most 1, found {self.top_p}")


GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Draft:
    """Drafted tokens, and the distribution q that each was drawn from, given those before it.

    odds: float64[vocab] for each token; empty where the tokens were not drawn but chosen, which is q = 1 for
          the token and 0 for all others.
    """

    ids: Sequence[int]
    odds: Sequence[Distribution] = field(default=())

    def __post_init__(self) -> None:
        if self.odds and len(self.odds) != len(self.ids):
            raise UsageError(
                f"draft: expected a distribution for each of {len(self.ids)} tokens, found {len(self.odds)}"
            )


class Acceptance:
    """The rule for one answer, with its random numbers."""

    def __init__(self, sampling: Sampling = GREEDY) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def token(
        self,
        logits: Logits,
        drafted: int | None = None,
        odds: Distribution | None = None,
        barred: Sequence[int] = (),
    ) -> int:
        """The token of a position: `drafted` exactly where the draft is accepted.

        logits:  float32[vocab] of the target. barred: ids that must not be drawn.
        drafted: the proposed token; None draws from the target.
        odds:    the distribution that it was drawn from; None for a token that was chosen.

        Raises EngineError for logits that are not numbers, UsageError for odds that the draft cannot be from.
        """
        if not self._sampling.temperature:
            return _likeliest(logits, barred)
        target = distribution(_without(logits, barred), self._sampling)
        if drafted is None:
            return self.draw(target)
        return self._accept(target, drafted, odds)

    def draw(self, probabilities: Distribution) -> int:
        """A token of a distribution; never one of probability 0."""
        mass = probabilities.cumsum()
        return int(mass.searchsorted(self._random.random() * mass[-1], side="right"))

    def _accept(self, p: Distribution, drafted: int, odds: Distribution | None) -> int:
        """`drafted` with probability min(1, p/q), else a token from norm(max(p - q, 0))."""
        if not 0 <= drafted < len(p) or (odds is not None and odds.shape != p.shape):
            raise UsageError(
                f"draft: expected one of the target's {len(p)} tokens, found token {drafted}"
                + ("" if odds is None else f" of {len(odds)}")
                + ". Use a drafter of the same vocabulary."
            )
        if odds is None:
            odds = np.zeros_like(p)
            odds[drafted] = 1
        elif not odds[drafted] > 0:
            raise UsageError(
                f"draft: expected the distribution that token {drafted} was drawn from, found one that "
                f"gives it the probability {odds[drafted]}"
            )
        if self._random.random() * odds[drafted] < p[drafted]:
            return drafted
        rest = np.maximum(p - odds, 0)
        # With p = q nothing is rejected but for rounding.
        return self.draw(rest if rest.any() else p)


def distribution(logits: Logits, sampling: Sampling) -> Distribution:
    """softmax(logits / temperature) of float32[vocab], cut to its nucleus and normalised again.

    temperature 0 is all mass on the likeliest token, of equal ones the first. Raises EngineError for logits
    that are not numbers.
    """
    top = float(logits.max())
    if not np.isfinite(top):
        raise EngineError("the model's logits are not numbers: expected finite values. Use another variant.")
    if not sampling.temperature:
        certain = np.zeros(len(logits))
        certain[logits.argmax()] = 1
        return certain
    shares = np.exp((logits.astype(np.float64) - top) / sampling.temperature)
    shares /= shares.sum()
    if sampling.top_p is not None and sampling.top_p < 1:
        order = np.argsort(-shares, kind="stable")
        mass = shares[order].cumsum()
        shares[order[1:][mass[:-1] > sampling.top_p]] = 0
        shares /= shares.sum()
    return shares


def _likeliest(logits: Logits, barred: Sequence[int]) -> int:
    token = int(logits.argmax())
    return int(_without(logits, barred).argmax()) if token in barred else token


def _without(logits: Logits, barred: Sequence[int]) -> Logits:
    if not len(barred):
        return logits
    held = logits.copy()
    held[list(barred)] = -np.inf
    return held
