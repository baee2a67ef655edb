"""Scoring of texts with the edge model: its greedy token, margin and log-probabilities at every position.

Responsible for running a known text through the device's engine in one pass. Not responsible for what follows
from the scores (see `edge_aware`).

One causal pass over a text gives the model's greedy token after each of its prefixes. The device needs one
pass per token to decode the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_runtime.bundle.manifest import GUARDS
from edge_runtime.decode.forced import FillStats
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.engine.shared import SharedModel
from edge_runtime.predictor import read_logits


@dataclass(frozen=True)
class SpanScores:
    """The edge model's predictions at the n positions of a span, each given all tokens before it.

    greedy:  int64 [n], the most probable token; never an end marker, which the device suppresses until the
             end.
    margin:  float32 [n], difference of logits between it and the second most probable token.
    logprob: float32 [n], log-probability (nats) of the text's token.
    best:    float32 [n], the same of the greedy token.
    ends:    bool [n], whether an end marker is more probable than the greedy token.
    tokens:  tokens that went through the model for these scores.
    """

    greedy: NDArray[np.int64]
    margin: NDArray[np.float32]
    logprob: NDArray[np.float32]
    best: NDArray[np.float32]
    ends: NDArray[np.bool_]
    tokens: int


class Scorer:
    """Scores with the device's model. A prefix shared by consecutive spans is not run again.

    guard: margin in logits below which another device with this model may prefer another token.
    """

    def __init__(
        self, model: Engine | SharedModel, eos_ids: frozenset[int], guard: float = max(GUARDS.values())
    ) -> None:
        self.model, self.guard = model, guard
        self.context = model.context
        self._eos = sorted(eos_ids)

    def score(self, prompt: Sequence[int], text: Sequence[int], start: int = 0) -> SpanScores:
        """The scores of a text behind a prompt, token ids, from position `start` of the text to its end.

        Raises ContextError where the span does not fit, EngineError where the model fails.
        """
        stats = FillStats()
        rows = read_logits(self.model, prompt, text[:-1], start, stats)
        judged = [self._judge(row, id_) for row, id_ in zip(rows, text[start:], strict=True)]
        greedy, margin, logprob, best, ends = map(np.asarray, zip(*judged, strict=True))
        return SpanScores(greedy, margin, logprob, best, ends, stats.computed)

    def _judge(
        self, logits: Logits, id_: int
    ) -> tuple[np.int64, np.float32, np.float32, np.float32, np.bool_]:
        """The first five columns of SpanScores at one position, whose token is `id_`."""
        held = logits.copy()
        held[self._eos] = -np.inf
        greedy = held.argmax()
        top, standing = held[greedy], held[id_]
        norm = top + np.float32(np.log(np.exp(held - top).sum(dtype=np.float64)))
        held[greedy] = -np.inf
        return greedy, top - held.max(), standing - norm, top - norm, logits[self._eos].max() > top
