"""The state of one answer while it is decoded: its tokens and options, its cost, and passes over it.

Responsible for what every mode of decoding shares: drafts, passes within the limits, the token of a gap. Not
responsible for what a mode does with anchors (see `forced`, `constrained`) or for the end of an answer (see
`endings`).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple

from edge_runtime.decode.acceptance import GREEDY, Acceptance, Distribution, Draft, Sampling
from edge_runtime.decode.endings import Ending, Stop
from edge_runtime.decode.speculate import Drafter
from edge_runtime.engine.base import Engine, Logits, log_total
from edge_runtime.grammar.matcher import CompiledGrammar
from payload import AnchorSet


class Source(StrEnum):
    """The origin of a token."""

    PROMPT = "prompt"
    ANCHOR = "anchor"
    FILL = "fill"
    GRAMMAR = "grammar"
    """Forced by the grammar, or written to end the answer as a sentence of it."""


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
    """Decoding options. Only `tolerance`, `sampling` and `grammar` change tokens, and `max_tokens` the end.

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
    grammar:       None, or what the answer is a sentence of (see `constrained`), whatever the anchors are.
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
    grammar: CompiledGrammar | None = None


@dataclass
class FillStats:
    """Cost of an answer, updated while it is decoded.

    passes:   calls of the model. computed: tokens that went through it.
    reused:   prompt tokens found in its cache.
    drafted, accepted: drafted gap tokens, and those of them that were right.
    refused:  anchors in whose place the edge model's own token stands; None where anchors are not judged.
              Those at and behind the end of the answer are neither taken nor refused.
    realigned, dropped, forced: with a grammar, anchors written behind their own place, anchors not written,
              and tokens written without the model; else None.
    prefill:  seconds to the end of the first pass. fill: seconds from there, the reader's own time included.
    stop:     the reason of the end; None before it.
    """

    passes: int = 0
    computed: int = 0
    reused: int = 0
    drafted: int = 0
    accepted: int = 0
    refused: int | None = None
    realigned: int | None = None
    dropped: int | None = None
    forced: int | None = None
    prefill: float = 0.0
    fill: float = 0.0
    stop: Stop | None = None


class Slot(NamedTuple):
    """A position of the answer in one pass: an anchor, or a drafted token to be verified.

    odds: the distribution that a drafted token was drawn from; None where it was chosen.
    """

    id: int
    anchor: bool
    odds: Distribution | None = None


UNKNOWN = Slot(-1, False)
"""A position without a draft. It is the last one of its pass: nothing after it can be run."""


class Decoder:
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
        self.anchor_set = anchors
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

    def slots(self, most_anchors: int) -> list[Slot]:
        """Positions of the next pass: anchors, drafted tokens where there is a drafter, one unknown token."""
        slots: list[Slot] = []
        position, budget = self.position, self.options.max_draft
        while position < self.rule.end and most_anchors:
            if position in self.anchors:
                slots.append(Slot(self.anchors[position], True))
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
                return [*slots, UNKNOWN]
        return slots

    def _draft(self, wanted: int, slots: Sequence[Slot]) -> Sequence[Slot]:
        """At most as many drafted tokens as wanted, after the text and the slots so far."""
        if self.options.drafter is None or not wanted:
            return ()
        found = self.options.drafter.draft([*self.text, *(slot.id for slot in slots)], wanted)
        draft = found if isinstance(found, Draft) else Draft(found)
        return [Slot(id_, False, odds) for id_, odds in zip_longest(draft.ids[:wanted], draft.odds[:wanted])]

    def predictions(self, slots: Sequence[Slot], wanted: Sequence[int]) -> Iterator[Logits]:
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

    def fill(self, slot: Slot, logits: Logits) -> Token | None:
        """The token of a slot that is no anchor; None where an end token ends the answer.

        The pass continues after it only where it is the drafted one.
        """
        token = self.choose(slot, logits, logits)
        return None if token is None else self.emit(token, Source.FILL, log_prob(logits, token))

    def choose(self, slot: Slot, logits: Logits, allowed: Logits) -> int | None:
        """The id of that token. allowed: the logits, minus infinity where a token may not stand."""
        barred = self.barred
        drafted = None if slot is UNKNOWN else slot.id
        token = self.acceptance.token(allowed, drafted, slot.odds, barred)
        if token in self.eos and not barred:
            self.stats.stop = Stop.EOS
            return None
        if drafted is not None:
            self.stats.accepted += token == drafted
            if self.options.drafter:
                self.options.drafter.observe(token == drafted)
        return token

    @property
    def barred(self) -> Sequence[int]:
        """End tokens where they do not count: while anything that the cloud has committed remains."""
        return self.eos if self.position < self.rule.eos_from else ()

    def forget_the_rest(self) -> None:
        """Takes back what a pass has run beyond the text; the last token runs with the next pass."""
        self.engine.rewind(min(self.engine.length, len(self.text) - 1))


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
