"""Forced decoding: anchors at their positions, greedy tokens in the gaps between them (paper section 3.2).

Responsible for which tokens are known, which have to be predicted, and for few passes. Not responsible for
the end of an answer (see `endings`), text, payload bytes or the model.

The paper runs one pass per position. Here a run of known tokens takes one pass: the prompt with the leading
anchors, then each gap token; the anchors after a gap share the pass of its last token.

With `FillOptions.tolerance` anchors are a draft (speculative decoding): each is judged by the edge model's
own prediction at its place, and taken only where that model would have written it, within the tolerance. At
the first that is refused the model's own token is written and what was run after it is rewound.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence

from edge_runtime.decode.constrained import Constrained
from edge_runtime.decode.decoder import UNKNOWN, Decoder
from edge_runtime.decode.decoder import FillOptions as FillOptions
from edge_runtime.decode.decoder import FillStats as FillStats
from edge_runtime.decode.decoder import Source as Source
from edge_runtime.decode.decoder import Token as Token
from edge_runtime.decode.decoder import chunks as chunks
from edge_runtime.decode.decoder import common_prefix as common_prefix
from edge_runtime.decode.decoder import log_prob as log_prob
from edge_runtime.decode.endings import Ending, Stop, ending
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.errors import ContextError, UsageError
from payload import AnchorSet, Contract
from payload.anchors import MAX_CANVAS


def fill(
    engine: Engine,
    prompt_ids: Sequence[int],
    anchors: AnchorSet,
    options: FillOptions | None = None,
    stats: FillStats | None = None,
    *,
    answered: Sequence[int] = (),
) -> Generator[Token]:
    """Yields the answer's tokens in order, each as soon as it is known, without the end token.

    prompt_ids: ids of the prompt in the chat template, at least one. Those that the engine's cache already
                starts with are not run again.
    stats:      updated while decoding; adds to what it holds.
    answered:   first ids of the answer where they are known already; the stream continues after them.

    Decoding is deterministic, and greedy without `FillOptions.sampling`; an empty anchor set gives plain
    decoding. The generator may
    be closed at any time: the engine stays usable. Raises UsageError for an empty prompt and for options that
    exclude one another, ContextError where prompt and anchors do not fit or no sentence of the grammar does,
    EngineError where the model fails.
    """
    options = options or FillOptions()
    stats = stats if stats is not None else FillStats()
    if not prompt_ids:
        raise UsageError("expected a prompt of at least one token, found none")
    if len(prompt_ids) >= engine.context:
        raise ContextError(
            f"expected a prompt of less than {engine.context} tokens, found {len(prompt_ids)}. "
            "Raise --context or shorten the prompt."
        )
    _check(options, anchors.contract)
    rule = stop_rule(anchors, engine.context, len(prompt_ids), options)
    mode: type[Decoder] = _Forced if options.tolerance is None else _Verified
    if options.grammar is not None:
        mode = Constrained
    return mode(engine, list(prompt_ids), list(answered), anchors, rule, options, stats).tokens()


def stop_rule(anchors: AnchorSet, context: int, prompt: int, options: FillOptions) -> Ending:
    """The end of an answer after `prompt` tokens. Where anchors are judged it is that without a payload:
    canvas and length are the cloud's word as well. Raises ContextError where the anchors do not fit.
    """
    if options.tolerance is not None:
        anchors = AnchorSet.empty(min(context, MAX_CANVAS), anchors.contract)
    return ending(anchors, context - prompt, options.max_tokens)


def _check(options: FillOptions, contract: Contract) -> None:
    held = None if options.grammar is None else options.grammar.grammar.identity
    if contract.grammar not in (None, held):
        raise UsageError(
            f"grammar: expected {contract.grammar[:8]}, which these anchors were made for, found "
            f"{'none' if held is None else held[:8]}. Give the schema or grammar that was asked for."
        )
    if options.tolerance is None:
        return
    if options.grammar is not None:
        raise UsageError(
            "grammar: expected every anchor that it allows to be taken, found a tolerance beside it. Leave "
            "one of the two out."
        )
    if options.sampling:
        raise UsageError(
            "sampling: expected no tolerance for anchors beside it: that is defined for greedy decoding. "
            "Leave one of the two out."
        )
    if not options.tolerance >= 0:
        raise UsageError(f"tolerance: expected 0 nats or more, found {options.tolerance}")


class _Forced(Decoder):
    """Every anchor is taken."""

    def answer(self) -> Iterator[Token]:
        scored = self.options.score_anchors
        while self.position < self.rule.end:
            slots = self.slots(self.rule.end)
            wanted = [index for index, slot in enumerate(slots) if scored or not slot.anchor]
            predictions = self.predictions(slots, wanted)
            for slot in slots:
                if slot.anchor:
                    score = log_prob(next(predictions), slot.id) if scored else None
                    yield self.emit(slot.id, Source.ANCHOR, score)
                    continue
                token = self.fill(slot, next(predictions))
                if token is None:
                    return
                yield token
                if token.id != slot.id:
                    self.forget_the_rest()
                    break
        self.stats.stop = self.rule.stop


class _Verified(Decoder):
    """An anchor is taken where the edge model would have written it, within `tolerance` nats.

    Of anchors, all are judged in the first pass; after one was refused twice as many as the last pass took,
    so that wrong anchors cost little.
    """

    def answer(self) -> Iterator[Token]:
        self.stats.refused = self.stats.refused or 0
        window = self.rule.end
        while self.position < self.rule.end:
            # The last anchor of a pass costs nothing: its prediction is needed in any case.
            slots = self.slots(window)
            taken = 0
            for slot, logits in zip(slots, self.predictions(slots, range(len(slots))), strict=False):
                if self._stated_end(logits):
                    self.stats.stop = Stop.EOS
                    return
                if slot.anchor and self._would_write(slot.id, logits):
                    taken += 1
                    score = log_prob(logits, slot.id) if self.options.score_anchors else None
                    yield self.emit(slot.id, Source.ANCHOR, score)
                    continue
                token = self.fill(UNKNOWN if slot.anchor else slot, logits)
                if token is None:
                    return
                if slot.anchor:
                    self.stats.refused += 1
                    window = 1
                yield token
                if token.id != slot.id:
                    self.forget_the_rest()
                    break
            window = max(window, 2 * taken)
        self.stats.stop = self.rule.stop

    def _would_write(self, id_: int, logits: Logits) -> bool:
        """With tolerance 0 an anchor of the same logit as the likeliest token is not that token."""
        if not self.options.tolerance:
            return id_ == int(logits.argmax())
        return float(logits[id_]) >= float(logits.max()) - self.options.tolerance

    def _stated_end(self, logits: Logits) -> bool:
        """The length that the payload states is judged like an anchor: the answer ends there where an end
        token is within the tolerance.
        """
        if not self.options.tolerance or self.position != self.length or not self.eos:
            return False
        return float(logits[self.eos].max()) >= float(logits.max()) - self.options.tolerance


def agreement(tokens: Iterable[Token]) -> float | None:
    """Agreement of edge and cloud on an answer, 0 to 1: the geometric mean probability of the anchors.

    1 means that the edge model is certain of every anchor; None that no anchor was scored.
    """
    scores = [t.logprob for t in tokens if t.source is Source.ANCHOR and t.logprob is not None]
    return math.exp(sum(scores) / len(scores)) if scores else None
