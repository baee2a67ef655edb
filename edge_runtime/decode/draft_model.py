"""A small autoregressive model as a drafter: standard speculative decoding, the baseline for other drafters.

Responsible for drawing drafts with an engine of its own. Not responsible for their acceptance (see
`acceptance`).
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.decode.acceptance import GREEDY, Acceptance, Distribution, Draft, Sampling, distribution
from edge_runtime.engine.base import Engine


class DraftModel:
    """Drafts with an autoregressive model of the target's vocabulary, one pass per token.

    engine:   the draft model, with as many logits as the target; its cache belongs to this drafter.
    sampling: how drafts are drawn. The nearer to the target's own distribution, the more is accepted; the
              seed must not be the target's.
    passes:   calls of the draft model so far.
    """

    def __init__(self, engine: Engine, sampling: Sampling = GREEDY) -> None:
        self._engine = engine
        self._sampling = sampling
        self._random = Acceptance(sampling)
        self.passes = 0

    def draft(self, text: Sequence[int], wanted: int) -> Draft:
        """At most `wanted` tokens after the text, as many as the draft model's context holds."""
        wanted = min(wanted, self._engine.context - len(text) + 1)
        if wanted <= 0:
            return Draft(())
        cached = self._engine.tokens
        shared = min(len(cached), len(text) - 1)
        shared = next((i for i in range(shared) if cached[i] != text[i]), shared)
        self._engine.rewind(shared)
        pending = list(text[shared:])
        ids: list[int] = []
        odds: list[Distribution] = []
        while len(ids) < wanted:
            logits = self._engine.append(pending, [len(pending) - 1])[0]
            self.passes += 1
            odds.append(distribution(logits, self._sampling))
            ids.append(self._random.draw(odds[-1]))
            pending = ids[-1:]
        return Draft(ids, odds)

    def observe(self, right: bool) -> None:
        """Nothing: the number of drafted tokens is the caller's."""
