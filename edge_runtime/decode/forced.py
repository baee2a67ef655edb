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
from itertools import chain, zip_longest
from typing import NamedTuple

from edge_runtime.decode.acceptance import GREEDY, Acceptance, Distribution, Draft, Sampling
from edge_runtime.decode.endings import Ending, Stop, ending
from edge_runtime.decode.lookahead import MAX_SCORED_ANCHORS, search
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
    """Decoding options. Only `lookahead`, `tolerance` and `sampling` change tokens, and `max_tokens` the
    answer's end.

    max_tokens:    most tokens of the answer; None is the payload's canvas.
    score_anchors: report log P of each anchor, at the cost of the output head on its row.
    echo_prompt:   yield the prompt's tokens first.
    max_chunk, max_rows: most tokens and most rows of logits of one pass; they bound its memory.
    drafter:       drafts gap tokens, several of which are verified in one pass (speculative decoding).
    max_draft:     most drafted tokens of one pass.
    lookahead:     number of tokens at the end of a gap that are chosen together with the anchors after it.
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
    lookahead: int = 0
    tolerance: float | None = None
    sampling: Sampling | None = None


@dataclass
class FillStats:
    """Cost of an answer, updated while it is decoded.

    passes:   calls of the model. computed: tokens that went through it.
    reused:   prompt tokens found in its cache.
    drafted, accepted: drafted gap tokens, and those of them that were right.
    looked, changed: gaps filled with lookahead, and those filled otherwise than greedy decoding would have.
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
    looked: int = 0
    changed: int = 0
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
    return _Decoder(engine, list(prompt_ids), list(answered), anchors, rule, options, stats).tokens()


def stop_rule(anchors: AnchorSet, context: int, prompt: int, options: FillOptions) -> Ending:
    """The end of an answer after `prompt` tokens. Where anchors are judged it is that without a payload:
    canvas and length are the cloud's word as well. Raises ContextError where the anchors do not fit.
    """
    if options.tolerance is not None:
        anchors = AnchorSet.empty(min(context, MAX_CANVAS), anchors.contract)
    return ending(anchors, context - prompt, options.max_tokens)


def _check(options: FillOptions) -> None:
    if options.sampling and (options.lookahead or options.tolerance is not None):
        raise UsageError(
            "sampling: expected neither lookahead nor a tolerance for anchors beside it: both are defined "
            "for greedy decoding. Leave the others out."
        )
    if options.tolerance is None:
        return
    if not options.tolerance >= 0:
        raise UsageError(f"tolerance: expected 0 nats or more, found {options.tolerance}")
    if options.lookahead:
        raise UsageError(
            f"lookahead: expected 0 where anchors are verified, found {options.lookahead}: it chooses gap "
            "tokens by the anchors after them, before these are verified. Leave one of the two out."
        )


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
    """The state of one answer being decoded."""

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
        self.tolerance = options.tolerance
        self.length = anchors.length
        self.window = rule.end  # most anchors that one pass judges
        if self.tolerance is not None:
            stats.refused = stats.refused or 0
        self.eos = sorted(anchors.contract.eos_ids)
        self.anchors = anchors.by_position
        self.anchor_positions = [position for position in anchors.positions if position < rule.end]
        self.next_logits: Logits | None = None  # logits after the text, where a lookahead has computed them
        self.prompt = prompt_ids
        self.text = prompt_ids + answered  # the prompt and every token of the answer so far

    def tokens(self) -> Generator[Token]:
        self.started = time.perf_counter()
        before = self.stats.prefill + self.stats.fill
        try:
            if self.options.echo_prompt:
                for index, id_ in enumerate(self.prompt):
                    yield Token(id_, index - len(self.prompt), Source.PROMPT, None)
            yield from self._answer()
        finally:
            self.stats.fill = before + time.perf_counter() - self.started - self.stats.prefill

    @property
    def position(self) -> int:
        """Position of the next token."""
        return len(self.text) - len(self.prompt)

    def _answer(self) -> Iterator[Token]:
        """Repeats: run pending and known tokens in one pass, emit them, predict one more token."""
        scored = self.options.score_anchors
        judged = self.tolerance is not None
        # The last token always runs: it predicts the next one.
        reused = min(common_prefix(self.engine.tokens, self.text), len(self.text) - 1)
        self.engine.rewind(reused)
        if not self.stats.passes:
            self.stats.reused = min(reused, len(self.prompt))
        while self.position < self.rule.end:
            pending = self.text[self.engine.length :]
            slots = self._slots()
            before = len(pending) - 1  # the row that predicts the first slot
            rows = [before + i for i, slot in enumerate(slots) if scored or judged or not slot.anchor]
            known = self.next_logits if self.next_logits is not None and rows[:1] == [before] else None
            self.next_logits = None
            ids = pending + [slot.id for slot in slots]
            predictions = self._run(ids, rows) if known is None else chain([known], self._run(ids, rows[1:]))
            taken = 0  # anchors of this pass
            for slot in slots:
                if slot.anchor and not judged:
                    score = log_prob(next(predictions), slot.id) if scored else None
                    yield self._emit(slot.id, Source.ANCHOR, score)
                    continue
                logits = next(predictions)
                if slot is _UNKNOWN and not self._gap_before_lookahead(self.position):
                    yield from self._look_ahead(logits)
                    break
                token = self._choose(logits, slot)
                if token is None:
                    return
                right = token == slot.id
                if slot.anchor and right:
                    taken += 1
                    yield self._emit(token, Source.ANCHOR, log_prob(logits, token) if scored else None)
                    continue
                if slot.anchor:
                    self.stats.refused = (self.stats.refused or 0) + 1
                    self.window = max(1, 2 * taken)
                yield self._emit(token, Source.FILL, log_prob(logits, token))
                if slot is not _UNKNOWN and not slot.anchor and self.options.drafter:
                    self.options.drafter.observe(right)
                if not right:
                    self.engine.rewind(min(self.engine.length, len(self.text) - 1))
                    break
                self.stats.accepted += 1
            self.window = max(self.window, 2 * taken)
        self.stats.stop = self.rule.stop

    def _slots(self) -> list[_Slot]:
        """Positions of the next pass: anchors, drafted tokens where there is a drafter, one unknown token.

        Anchors that are judged are at most `window`: all at first, after one was refused twice as many as
        the last pass took, so that wrong anchors cost little. The last of them costs nothing: its prediction
        is needed in any case.
        """
        slots: list[_Slot] = []
        position, budget, judged = self.position, self.options.max_draft, 0
        while position < self.rule.end:
            if position in self.anchors:
                slots.append(_Slot(self.anchors[position], True))
                position += 1
                judged += self.tolerance is not None
                if judged == self.window:
                    return slots
                continue
            draft = self._draft(position, budget, slots)
            self.stats.drafted += len(draft)
            slots += draft
            position += len(draft)
            budget -= len(draft)
            if position not in self.anchors and position < self.rule.end:
                return [*slots, _UNKNOWN]
        return slots

    def _draft(self, position: int, budget: int, slots: Sequence[_Slot]) -> Sequence[_Slot]:
        """Drafted tokens for the gap at a position, no more than the gap or the budget holds."""
        gap = min(budget, self._gap_before_lookahead(position))
        if self.options.drafter is None or gap <= 0:
            return ()
        found = self.options.drafter.draft([*self.text, *(slot.id for slot in slots)], gap)
        draft = found if isinstance(found, Draft) else Draft(found)
        return [_Slot(id_, False, odds) for id_, odds in zip_longest(draft.ids[:gap], draft.odds[:gap])]

    def _gap_before_lookahead(self, position: int) -> int:
        """Number of tokens from a position on that are chosen without lookahead."""
        following = bisect_left(self.anchor_positions, position)
        if following == len(self.anchor_positions):
            return self.rule.end - position
        return max(0, self.anchor_positions[following] - position - self.options.lookahead)

    def _look_ahead(self, logits: Logits) -> Iterator[Token]:
        """Emits the rest of a gap, chosen by lookahead, and the anchors after it.

        logits: float32[vocab] of the gap's next token.
        """
        end = self.anchor_positions[bisect_left(self.anchor_positions, self.position)]
        following = []
        for position in range(end, min(end + MAX_SCORED_ANCHORS, self.rule.end)):
            if position not in self.anchors:
                break
            following.append(self.anchors[position])
        choice = search(logits, end - self.position, following, self._after, self.eos)
        self.stats.looked += 1
        self.stats.changed += not choice.greedy
        for id_, score in zip(choice.ids, choice.scores, strict=True):
            yield self._emit(id_, Source.FILL, score)
        for id_, score in zip(following, choice.anchor_scores, strict=True):
            yield self._emit(id_, Source.ANCHOR, score if self.options.score_anchors else None)
        self.engine.rewind(common_prefix(self.engine.tokens, self.text))
        self.next_logits = choice.next_logits

    def _after(self, ids: Sequence[int], rows: Sequence[int]) -> Iterator[Logits]:
        """Runs ids after the text; reuses what the cache holds of them up to the first wanted row."""
        whole = [*self.text, *ids]
        shared = min(common_prefix(self.engine.tokens, whole), len(self.text) + rows[0])
        self.engine.rewind(shared)
        return self._run(whole[shared:], [len(self.text) + row - shared for row in rows])

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Iterator[Logits]:
        """Runs the ids and yields float32[vocab] logits of the wanted rows, each valid until the next.

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

    def _emit(self, id_: int, source: Source, score: float | None) -> Token:
        position = self.position
        self.text.append(id_)
        return Token(id_, position, source, score)

    def _choose(self, logits: Logits, slot: _Slot) -> int | None:
        """The token of a position: its anchor where within the tolerance, else what `Acceptance` gives.

        None where the answer ends. The length that the payload states is judged like an anchor: the answer
        ends there where an end token is within the tolerance.
        """
        if self.tolerance:  # with 0 an anchor of the same logit as the likeliest token is not that token
            least = float(logits.max()) - self.tolerance
            if self.position == self.length and self.eos and float(logits[self.eos].max()) >= least:
                self.stats.stop = Stop.EOS
                return None
            if slot.anchor and float(logits[slot.id]) >= least:
                return slot.id
        barred = self.eos if self.position < self.rule.eos_from else ()
        drafted = None if slot is _UNKNOWN or slot.anchor else slot.id
        token = self.acceptance.token(logits, drafted, slot.odds, barred)
        if token not in self.eos or barred:
            return token
        self.stats.stop = Stop.EOS
        return None


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
