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
import time
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple

from edge_runtime.decode.acceptance import GREEDY, Acceptance, Distribution, Draft, Sampling
from edge_runtime.decode.endings import Ending, Stop, ending
from edge_runtime.decode.speculate import Drafter
from edge_runtime.engine.base import Engine, Logits, log_total
from edge_runtime.errors import ContextError, UsageError
from payload import AnchorSet
from payload.anchors import MAX_CANVAS


class Source(StrEnum):
    """The origin of a token."""

    PROMPT = "prompt"
    ANCHOR = "anchor"
    FILL = "fill"


class Token(NamedTuple):
    """One token of the stream.

    position: 0-based in the answer; those of the prompt are negative, the last is -1.
    logprob:  natural logarithm of P(token | everything before it) under the edge model; None where not
    scored.
    """

    id: int
    position: int
    source: Source
    logprob: float | None


@dataclass(frozen=True)
class FillOptions:
    """Decoding options. Only `tolerance` and `sampling` change tokens, and `max_tokens` the answer's end.

    max_tokens:    most tokens of the answer; None is the payload's canvas.
    score_anchors: report log P of each anchor, at the cost of the output head on its row.
    echo_prompt:   yield the prompt's tokens first.
    max_chunk, max_rows: most tokens and most rows of logits of one pass; they bound its memory.
    drafter:       drafts gap tokens, several of which are verified in one pass (speculative decoding).
    max_draft:     most drafted tokens of one pass.
    tolerance:     None takes every anchor. A number judges them: an anchor is taken where its log-probability
                   under the edge model is at most this many nats below that of the likeliest token, else the
                   edge model's own token. With 0 the answer is the edge model's own greedy one, whatever the
                   anchors, and of passes there are no more than without anchors.
    sampling:      None decodes greedily. Else tokens in gaps and behind the last anchor are drawn, with a
                   drafter or without from the same distribution: the edge model's own, as set here.
    """

    max_tokens: int | None = None
    score_anchors: bool = True
    echo_prompt: bool = False
    max_chunk: int = 512
    max_rows: int = 64
    drafter: Drafter | None = None
    max_draft: int = 8
    tolerance: float | None = None
    sampling: Sampling | None = None


@dataclass
class FillStats:
    """Cost of an answer, updated while it is decoded.

    passes:   calls of the model. computed: tokens that went through it.
    reused:   prompt tokens found in its cache.
    drafted, accepted: drafted gap tokens, and those of them that were right.
    refused:  anchors in whose place the edge model's own token stands; None where anchors are not judged.
              Those at and behind the end of the answer are neither taken nor refused.
    prefill:  seconds to the end of the first pass. fill: seconds from there, the reader's own time included.
    stop:     the reason of the end; None before it.
    """

    passes: int = 0
    computed: int = 0
    reused: int = 0
    drafted: int = 0
    accepted: int = 0
    refused: int | None = None
    prefill: float = 0.0
    fill: float = 0.0
    stop: Stop | None = None


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
    exclude one another, ContextError where prompt and anchors do not fit, EngineError where the model fails.
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
    _check(options)
    rule = stop_rule(anchors, engine.context, len(prompt_ids), options)
    mode = _Forced if options.tolerance is None else _Verified
    return mode(engine, list(prompt_ids), list(answered), anchors, rule, options, stats).tokens()


def stop_rule(anchors: AnchorSet, context: int, prompt: int, options: FillOptions) -> Ending:
    """The end of an answer after `prompt` tokens. Where anchors are judged it is that without a payload:
    canvas and length are the cloud's word as well. Raises ContextError where the anchors do not fit.
    """
    if options.tolerance is not None:
        anchors = AnchorSet.empty(min(context, MAX_CANVAS), anchors.contract)
    return ending(anchors, context - prompt, options.max_tokens)


def _check(options: FillOptions) -> None:
    if options.tolerance is None:
        return
    if options.sampling:
        raise UsageError(
            "sampling: expected no tolerance for anchors beside it: that is defined for greedy decoding. "
            "Leave one of the two out."
        )
    if not options.tolerance >= 0:
        raise UsageError(f"tolerance: expected 0 nats or more, found {options.tolerance}")


class _Slot(NamedTuple):
    """A position of the answer in one pass: an anchor, or a drafted token to be verified.

    odds: the distribution that a drafted token was drawn from; None where it was chosen.
    """

    id: int
    anchor: bool
    odds: Distribution | None = None


_UNKNOWN = _Slot(-1, False)
"""A position without a draft. It is the last one of its pass: nothing after it can be run."""


class _Decoder:
    """The state of one answer: what is known of it, and passes over it. `answer` is the mode's own."""

    def __init__(
        self,
        engine: Engine,
        prompt_ids: list[int],
        answered: list[int],
        anchors: AnchorSet,
        rule: Ending,
        options: FillOptions,
        stats: FillStats,
    ) -> None:
        self.engine = engine
        self.options = options
        self.stats = stats
        self.rule = rule
        self.acceptance = Acceptance(options.sampling or GREEDY)
        self.length = anchors.length
        self.eos = sorted(anchors.contract.eos_ids)
        self.anchors = anchors.by_position
        self.gap_ends = [*(p for p in anchors.positions if p < rule.end), rule.end]
        self.prompt = prompt_ids
        self.text = prompt_ids + answered  # the prompt and every token of the answer so far

    def tokens(self) -> Generator[Token]:
        self.started = time.perf_counter()
        before = self.stats.prefill + self.stats.fill
        try:
            if self.options.echo_prompt:
                for index, id_ in enumerate(self.prompt):
                    yield Token(id_, index - len(self.prompt), Source.PROMPT, None)
            # The last token always runs: it predicts the next one.
            reused = min(common_prefix(self.engine.tokens, self.text), len(self.text) - 1)
            self.engine.rewind(reused)
            if not self.stats.passes:
                self.stats.reused = min(reused, len(self.prompt))
            yield from self.answer()
        finally:
            self.stats.fill = before + time.perf_counter() - self.started - self.stats.prefill

    def answer(self) -> Iterator[Token]:
        """Passes over several slots each, until `stats.stop` says why the answer has ended."""
        raise NotImplementedError

    @property
    def position(self) -> int:
        """Position of the next token."""
        return len(self.text) - len(self.prompt)

    def slots(self, most_anchors: int) -> list[_Slot]:
        """Positions of the next pass: anchors, drafted tokens where there is a drafter, one unknown token."""
        slots: list[_Slot] = []
        position, budget = self.position, self.options.max_draft
        while position < self.rule.end and most_anchors:
            if position in self.anchors:
                slots.append(_Slot(self.anchors[position], True))
                position += 1
                most_anchors -= 1
                continue
            gap = self.gap_ends[bisect_left(self.gap_ends, position)] - position
            draft = self._draft(min(gap, budget), slots)
            self.stats.drafted += len(draft)
            slots += draft
            position += len(draft)
            budget -= len(draft)
            if len(draft) < gap:
                return [*slots, _UNKNOWN]
        return slots

    def _draft(self, wanted: int, slots: Sequence[_Slot]) -> Sequence[_Slot]:
        """At most as many drafted tokens as wanted, after the text and the slots so far."""
        if self.options.drafter is None or not wanted:
            return ()
        found = self.options.drafter.draft([*self.text, *(slot.id for slot in slots)], wanted)
        draft = found if isinstance(found, Draft) else Draft(found)
        return [_Slot(id_, False, odds) for id_, odds in zip_longest(draft.ids[:wanted], draft.odds[:wanted])]

    def predictions(self, slots: Sequence[_Slot], wanted: Sequence[int]) -> Iterator[Logits]:
        """Runs what the engine lacks of the text, and the slots; yields float32[vocab] logits for the slots
        whose indices are wanted, each valid until the next.
        """
        ids = [*self.text[self.engine.length :], *(slot.id for slot in slots)]
        before = len(ids) - len(slots) - 1  # the row that predicts the first slot
        return self._run(ids, [before + index for index in wanted])

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Iterator[Logits]:
        """Yields the logits of rows of the ids.

        Lazy: tokens that need no row are emitted before the pass. Tokens after the last wanted row are not
        run: their logits are not needed yet.
        """
        size = rows[-1] + 1 if rows else 0
        for start, stop, wanted in chunks(size, rows, self.options.max_chunk, self.options.max_rows):
            logits = self.engine.append(ids[start:stop], wanted)
            self.stats.passes += 1
            self.stats.computed += stop - start
            if wanted and not self.stats.prefill:
                self.stats.prefill = time.perf_counter() - self.started
            yield from logits

    def emit(self, id_: int, source: Source, score: float | None) -> Token:
        position = self.position
        self.text.append(id_)
        return Token(id_, position, source, score)

    def fill(self, slot: _Slot, logits: Logits) -> Token | None:
        """The token of a slot that is no anchor; None where an end token ends the answer.

        The pass continues after it only where it is the drafted one.
        """
        barred = self.eos if self.position < self.rule.eos_from else ()
        drafted = None if slot is _UNKNOWN else slot.id
        token = self.acceptance.token(logits, drafted, slot.odds, barred)
        if token in self.eos and not barred:
            self.stats.stop = Stop.EOS
            return None
        if drafted is not None:
            self.stats.accepted += token == drafted
            if self.options.drafter:
                self.options.drafter.observe(token == drafted)
        return self.emit(token, Source.FILL, log_prob(logits, token))

    def forget_the_rest(self) -> None:
        """Takes back what a pass has run beyond the text; the last token runs with the next pass."""
        self.engine.rewind(min(self.engine.length, len(self.text) - 1))


class _Forced(_Decoder):
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


class _Verified(_Decoder):
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
                token = self.fill(_UNKNOWN if slot.anchor else slot, logits)
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


def chunks(
    size: int, rows: Sequence[int], max_chunk: int, max_rows: int
) -> Iterator[tuple[int, int, list[int]]]:
    """Splits `size` tokens into passes within both limits: (start, stop, wanted rows relative to start)."""
    start = taken = 0
    while start < size:
        stop = min(start + max_chunk, size)
        if taken + max_rows < len(rows):
            stop = min(stop, rows[taken + max_rows])
        wanted = [row - start for row in rows[taken : taken + max_rows] if row < stop]
        yield start, stop, wanted
        taken += len(wanted)
        start = stop


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    size = min(len(first), len(second))
    return next((i for i in range(size) if first[i] != second[i]), size)


def log_prob(logits: Logits, id_: int) -> float:
    """Natural logarithm of a token's probability under float32[vocab] logits; raises EngineError for NaN."""
    return float(logits[id_]) - log_total(logits)


def agreement(tokens: Iterable[Token]) -> float | None:
    """Agreement of edge and cloud on an answer, 0 to 1: the geometric mean probability of the anchors.

    1 means that the edge model is certain of every anchor; None that no anchor was scored.
    """
    scores = [t.logprob for t in tokens if t.source is Source.ANCHOR and t.logprob is not None]
    return math.exp(sum(scores) / len(scores)) if scores else None
