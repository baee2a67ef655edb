"""Forced decoding: anchors at their places whatever the model says, greedy tokens in the gaps (section 3.2).

Knows which tokens are known, which have to be predicted, and in how few passes that goes. Does not know when
an answer ends (see `endings`), text, payload bytes or what runs the model.

The paper runs one pass a position. Here a run of known tokens goes through in one pass: one for the prompt
with the leading anchors, then one for each gap token, the anchors behind a gap riding with its last token.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

import numpy as np

from edge_runtime.decode.endings import Ending, Stop, ending
from edge_runtime.decode.lookahead import BEHIND, search
from edge_runtime.decode.speculate import Drafter
from edge_runtime.engine.base import Engine, Logits, log_total
from edge_runtime.errors import ContextError, UsageError
from payload import AnchorSet


class Source(StrEnum):
    """Where a token comes from."""

    PROMPT = "prompt"
    ANCHOR = "anchor"
    FILL = "fill"


class Token(NamedTuple):
    """One token of the stream.

    position: 0-based in the answer; the prompt's tokens count up to -1.
    logprob:  natural logarithm of P(token | everything before it) under the edge model, None where not asked.
    """

    id: int
    position: int
    source: Source
    logprob: float | None


@dataclass(frozen=True)
class FillOptions:
    """How to decode; none but `lookahead` changes a token, and `max_tokens` where the answer ends.

    max_tokens:    most tokens of the answer; None is the payload's canvas.
    score_anchors: report log P of each anchor, at the cost of the output head on its row.
    echo_prompt:   yield the prompt's tokens first.
    max_chunk, max_rows: most tokens and most rows of logits of one pass: they bound the memory it takes.
    drafter:       guesses gap tokens, which are then verified several a pass.
    max_draft:     most guessed tokens of one pass.
    lookahead:     the last so many tokens of a gap are chosen with sight of the anchors behind it.
    """

    max_tokens: int | None = None
    score_anchors: bool = True
    echo_prompt: bool = False
    max_chunk: int = 512
    max_rows: int = 64
    drafter: Drafter | None = None
    max_draft: int = 8
    lookahead: int = 0


@dataclass
class FillStats:
    """What a run cost; filled in while it goes.

    passes:  calls of the model. computed: tokens that went through it.
    reused:  prompt tokens found in its cache.
    drafted, accepted: gap tokens guessed, and those of them that were right.
    looked, changed: gaps filled with lookahead, and those where it has chosen other tokens than greedy.
    prefill: seconds to the end of the first pass. fill: seconds from there, the reader's own time included.
    """

    passes: int = 0
    computed: int = 0
    reused: int = 0
    drafted: int = 0
    accepted: int = 0
    looked: int = 0
    changed: int = 0
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
    """Yields the answer's tokens in order, each as soon as it is known; the end token is not one of them.

    Greedy, so the same input gives the same tokens; an empty anchor set gives plain greedy decoding. What the
    engine's cache shares with the prompt is not run again. The generator may be closed at any time: the
    engine stays usable. answered: the answer's first ids where they are settled already; the stream goes on
    behind them. Raises UsageError for an empty prompt, ContextError where prompt and anchors do not fit.
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
    rule = ending(anchors, engine.context - len(prompt_ids), options.max_tokens)
    return _Filling(engine, list(prompt_ids), list(answered), anchors, rule, options, stats).tokens()


class _Item(NamedTuple):
    """A place of the answer in one pass: forced is an anchor, else a guess to be verified."""

    id: int
    forced: bool


_UNKNOWN = _Item(-1, False)
"""A place without a guess. It comes last, for what follows it cannot be run."""


class _Filling:
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
        self.eos = sorted(anchors.contract.eos_ids)
        self.anchors = anchors.by_position
        self.places = [place for place in anchors.positions if place < rule.end]
        self.following: Logits | None = None  # what follows the text, where a lookahead has found it
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
        """Where the next token goes."""
        return len(self.text) - len(self.prompt)

    def _answer(self) -> Iterator[Token]:
        """Rounds of: run what is pending with what is known next, emit it, predict one token more."""
        scored = self.options.score_anchors
        # The last token always runs, for it predicts the next.
        reused = min(common_prefix(self.engine.tokens, self.text), len(self.text) - 1)
        self.engine.rewind(reused)
        if not self.stats.passes:
            self.stats.reused = min(reused, len(self.prompt))
        while self.position < self.rule.end:
            pending = self.text[self.engine.length :]
            items = self._items()
            before = len(pending) - 1  # the row that predicts the first item
            rows = [before + i for i, item in enumerate(items) if scored or not item.forced]
            known = self.following if self.following is not None and rows[:1] == [before] else None
            self.following = None
            ids = pending + [item.id for item in items]
            predictions = self._run(ids, rows) if known is None else chain([known], self._run(ids, rows[1:]))
            for item in items:
                if item.forced:
                    score = log_prob(next(predictions), item.id) if scored else None
                    yield self._emit(item.id, Source.ANCHOR, score)
                    continue
                logits = next(predictions)
                if item is _UNKNOWN and not self._blind(self.position):
                    yield from self._look_ahead(logits)
                    break
                token = self._greedy(logits)
                if token is None:
                    return
                yield self._emit(token, Source.FILL, log_prob(logits, token))
                if item is not _UNKNOWN and self.options.drafter:
                    self.options.drafter.observe(token == item.id)
                if token != item.id:
                    self.engine.rewind(min(self.engine.length, len(self.text) - 1))
                    break
                self.stats.accepted += 1
        self.stats.stop = self.rule.stop

    def _items(self) -> list[_Item]:
        """What can follow in one pass: anchors, guesses where there is a drafter, then one unknown token."""
        items: list[_Item] = []
        position, budget = self.position, self.options.max_draft
        while position < self.rule.end:
            if position in self.anchors:
                items.append(_Item(self.anchors[position], True))
                position += 1
                continue
            guess = self._guess(position, budget, items)
            self.stats.drafted += len(guess)
            items += [_Item(id_, False) for id_ in guess]
            position += len(guess)
            budget -= len(guess)
            if position not in self.anchors and position < self.rule.end:
                return [*items, _UNKNOWN]
        return items

    def _guess(self, position: int, budget: int, items: Sequence[_Item]) -> Sequence[int]:
        """The drafter's guess for the gap at a position, no longer than the gap or the budget."""
        gap = min(budget, self._blind(position))
        if self.options.drafter is None or gap <= 0:
            return ()
        return self.options.drafter.draft([*self.text, *(item.id for item in items)], gap)[:gap]

    def _blind(self, position: int) -> int:
        """Number of tokens from a position on that are chosen without sight of the anchors behind them."""
        following = bisect_left(self.places, position)
        if following == len(self.places):
            return self.rule.end - position
        return max(0, self.places[following] - position - self.options.lookahead)

    def _look_ahead(self, logits: Logits) -> Iterator[Token]:
        """Emits the rest of a gap, chosen with sight of the anchors behind it, and these anchors.

        logits: of the gap's next token.
        """
        end = self.places[bisect_left(self.places, self.position)]
        behind = []
        for place in range(end, min(end + BEHIND, self.rule.end)):
            if place not in self.anchors:
                break
            behind.append(self.anchors[place])
        choice = search(logits, end - self.position, behind, self._after, self.eos)
        self.stats.looked += 1
        self.stats.changed += not choice.greedy
        for id_, score in zip(choice.ids, choice.scores, strict=True):
            yield self._emit(id_, Source.FILL, score)
        for id_, score in zip(behind, choice.behind, strict=True):
            yield self._emit(id_, Source.ANCHOR, score if self.options.score_anchors else None)
        self.engine.rewind(common_prefix(self.engine.tokens, self.text))
        self.following = choice.following

    def _after(self, ids: Sequence[int], rows: Sequence[int]) -> Iterator[Logits]:
        """Runs ids after the text; what the cache shares with them before the first wanted row stays."""
        whole = [*self.text, *ids]
        shared = min(common_prefix(self.engine.tokens, whole), len(self.text) + rows[0])
        self.engine.rewind(shared)
        return self._run(whole[shared:], [len(self.text) + row - shared for row in rows])

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Iterator[Logits]:
        """Runs the ids and yields the logits of the wanted rows, each valid until the next is asked for.

        Lazy: what can be emitted without a row is emitted before the pass. What comes after the last wanted
        row is not run, for nobody asks what follows it.
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

    def _greedy(self, logits: Logits) -> int | None:
        """The likeliest token, or None where that ends the answer."""
        token = int(logits.argmax())
        if token not in self.eos:
            return token
        if self.position >= self.rule.eos_from:
            self.stats.stop = Stop.EOS
            return None
        held = logits.copy()
        held[self.eos] = -np.inf
        return int(held.argmax())


def chunks(
    size: int, rows: Sequence[int], max_chunk: int, max_rows: int
) -> Iterator[tuple[int, int, list[int]]]:
    """Cuts `size` tokens into passes within both bounds: (start, stop, wanted rows counted from start)."""
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
    """Number of leading ids that two sequences share."""
    size = min(len(first), len(second))
    return next((i for i in range(size) if first[i] != second[i]), size)


def log_prob(logits: Logits, id_: int) -> float:
    """Natural logarithm of a token's probability under float32[vocab] logits; raises EngineError for NaN."""
    return float(logits[id_]) - log_total(logits)


def agreement(tokens: Iterable[Token]) -> float | None:
    """How well edge and cloud agree on an answer, from 0 to 1: the anchors' geometric mean probability.

    1 says that the edge would have written every anchor itself; None that no anchor was scored.
    """
    scores = [t.logprob for t in tokens if t.source is Source.ANCHOR and t.logprob is not None]
    return math.exp(sum(scores) / len(scores)) if scores else None
