"""The edge model as a `payload.Predictor`: rows of log-probabilities after a prompt, for codec predictive.

Responsible for turning an engine's logits into rows, several per pass where the text is known. Not
responsible for coding (see `payload.codecs.predictive`).

Both sides run the graph with float32 activations: quantised activations differ between processors, and with
them the order of the predictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_runtime.decode.forced import FillStats, chunks
from edge_runtime.engine.base import MAX_CHUNK, MAX_ROWS, Engine, Logits, common_prefix
from edge_runtime.engine.shared import SharedModel
from edge_runtime.errors import EngineError
from payload import Contract


def read_logits(
    model: Engine | SharedModel,
    prompt_ids: Sequence[int],
    text: Sequence[int],
    start: int = 0,
    stats: FillStats | None = None,
) -> Iterator[Logits]:
    """Yields float32[vocab] logits for the positions `start` to len(text) of an answer, each given its
    prefix.

    Tokens that a cache holds already are not run again; stats counts the others. A row is valid
    until the next one. Raises ContextError or EngineError.
    """
    tokens = [*prompt_ids, *text]
    first = len(prompt_ids) - 1 + start  # the row that predicts the first position wanted
    with model.lease(tokens) as engine:
        reused = min(common_prefix(engine.tokens, tokens), first)
        engine.rewind(reused)
        rest = tokens[reused:]
        for begin, end, wanted in chunks(len(rest), range(first - reused, len(rest)), MAX_CHUNK, MAX_ROWS):
            logits = engine.append(rest[begin:end], wanted)
            if stats:
                stats.passes += 1
                stats.computed += end - begin
            if not np.isfinite(logits).all():
                raise EngineError(
                    "the model's logits are not numbers: expected finite values. Use another variant."
                )
            yield from logits


class EnginePredictor:
    """`payload.Predictor` on a model; `stats` counts its passes and the tokens that went through them."""

    def __init__(
        self,
        model: Engine | SharedModel,
        prompt_ids: Sequence[int],
        contract: Contract,
        identity: bytes,
        stats: FillStats | None = None,
    ) -> None:
        self._model = model
        self._vocab_size = contract.vocab_size
        self._eos = sorted(contract.eos_ids)
        self._reserved = sorted(contract.reserved)
        self.prompt_ids: Sequence[int] = list(prompt_ids)
        self.identity = identity
        self.stats = stats if stats is not None else FillStats()

    def read(self, text: Sequence[int], start: int) -> Iterator[NDArray[np.float64]]:
        """See `payload.Predictor`. Raises ContextError where the text is too long, EngineError otherwise."""
        for logits in read_logits(self._model, self.prompt_ids, text, start, self.stats):
            yield self._row(logits)

    def _row(self, logits: Logits) -> NDArray[np.float64]:
        """Log-probabilities [V + 1] of the ordinary tokens and, last, of all end tokens together."""
        wide = logits.astype(np.float64)
        norm = np.logaddexp.reduce(wide)
        row = np.empty(self._vocab_size + 1)
        row[:-1] = wide[: self._vocab_size]
        row[self._reserved] = -np.inf
        row[-1] = np.logaddexp.reduce(wide[self._eos])
        row -= norm
        return row
