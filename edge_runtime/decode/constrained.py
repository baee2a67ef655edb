"""Forced decoding with a grammar: every token is one that the grammar allows, whatever the anchors are.

Responsible for the order in which a grammar, anchors and the model decide, and for an end that is a sentence.
Not responsible for the grammar (see `grammar.matcher`), for endings (`grammar.ending`) or for where anchors
are allowed (`grammar.alignment`).

At each position the first of these that applies gives the token:

1. An anchor that is due, where the grammar allows it and an ending behind it still fits.
2. What the grammar forces: such tokens need no pass of the model; a run of them goes with the next pass.
3. The model, of the tokens that the grammar allows, as long as an ending behind its token still fits.
4. The ending that is known. So an answer whose tokens run out is a sentence as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from edge_runtime.decode.decoder import UNKNOWN, Decoder, FillStats, Slot, Source, Token, log_prob
from edge_runtime.decode.endings import Ending, Stop
from edge_runtime.engine.base import Logits
from edge_runtime.grammar.alignment import AnchorQueue
from edge_runtime.grammar.errors import GrammarRoomError
from edge_runtime.grammar.matcher import CompiledGrammar
from payload import AnchorSet

_TRIES = 3
"""Likeliest tokens that are asked for before a mask is computed."""
_BYTES_A_TOKEN = 4
"""The most bytes of an ending that are looked for, a token of the room that there is."""


class Plan:
    """What is known of an answer's next token before the model runs.

    It depends on the grammar, the anchors and the tokens so far only. limit: most tokens of the answer. That
    is `most`, or what the payload's canvas says where None, but then never less than the answer needs.
    Raises GrammarRoomError where no sentence was found that fits.
    """

    def __init__(
        self, grammar: CompiledGrammar, anchors: AnchorSet, rule: Ending, room: int, most: int | None = None
    ) -> None:
        self._vocabulary = grammar.vocabulary
        self._eos = grammar.vocabulary.eos
        self._matcher = grammar.matcher()
        wanted = min(room, anchors.canvas if most is None else most)
        self._ending = grammar.ending(room * _BYTES_A_TOKEN, wanted)
        self._rule = rule
        self._length = anchors.length
        self.queue = AnchorQueue(anchors)
        self.position = 0
        self._forced: deque[int] = deque()
        self._closing: deque[int] | None = None
        self._known: tuple[int, Source] | None = None
        self._sought = False
        wanted = min(room, room if most is None else most)
        needed = None if self._ending.rest is None else self._count(self._ending.rest, wanted)
        if needed is None or needed > wanted:
            found = "found none" if needed is None else f"the shortest found has {needed}"
            raise GrammarRoomError(
                f"{grammar.grammar}: expected a sentence of at most {wanted} tokens, {found}. "
                "Raise --max-tokens or --context, or ask for less."
            )
        self.limit = min(wanted, max(needed, anchors.canvas)) if most is None else wanted

    def known(self) -> tuple[int, Source] | None:
        """The next token and its origin, where it needs no model. None also where the answer has ended."""
        if not self._sought:
            self._known, self._sought = self._find(), True
        return self._known

    def _find(self) -> tuple[int, Source] | None:
        if self.stop is not None:
            return None
        if self._closing is None:
            anchor = self.queue.next(self.position, self._may_write)
            if anchor is not None:
                return anchor, Source.ANCHOR
            if not self._forced:
                self._forced.extend(self._matcher.forced())
            if not self._forced and not self._matcher.gave_up:
                return None
            if self._forced and self.fits(self._forced[0]):
                return self._forced[0], Source.GRAMMAR
            self.close()
        return (self._closing[0], Source.GRAMMAR) if self._closing else None

    def _may_write(self, id_: int) -> bool:
        return self._matcher.allows(id_) and self.fits(id_)

    def fits(self, id_: int) -> bool:
        """Whether the answer can still end within its limit behind this token, which the grammar allows."""
        left = self.limit - self.position - 1
        rest = self._ending.behind(self._vocabulary.token_bytes(id_), left)
        return rest is not None and self._count(rest, left) <= left

    def _count(self, rest: bytes, enough: int) -> int:
        """The tokens of an ending; its bytes where these are few enough, which is quicker to know."""
        return len(rest) if len(rest) <= enough else len(self._vocabulary.tokens.encode_bytes(rest))

    def close(self) -> None:
        """From here on the ending that is known is written."""
        assert self._ending.rest is not None
        self._closing = deque(self._vocabulary.tokens.encode_bytes(self._ending.rest))
        self._sought = False

    def take(self, id_: int) -> bool:
        """The answer goes on with a token: a known one, or the model's. False where it is not allowed."""
        known = self.known()
        self._sought = False
        if self._closing:
            self._closing.popleft()
            self.position += 1
            return True
        if known == (id_, Source.ANCHOR):
            self.queue.took(self.position)
        if self._forced and self._forced[0] == id_:
            self._forced.popleft()
        else:
            self._forced.clear()
        self._ending.take(self._vocabulary.token_bytes(id_))
        self.position += 1
        return self._matcher.take(id_)

    @property
    def stop(self) -> Stop | None:
        """The reason why the answer ends here; None where it goes on."""
        if self._closing is not None:
            return None if self._closing else Stop.LIMIT
        if self.position >= self.limit:
            return Stop.LIMIT
        if self._matcher.over:
            return Stop.GRAMMAR
        if self._rule.stop in (Stop.LENGTH, Stop.LAST_ANCHOR) and self._committed and self._matcher.accepts:
            return self._rule.stop
        return None

    @property
    def _committed(self) -> bool:
        """Whether nothing that the cloud has committed remains: no anchor, and no more of a stated length."""
        return not self.queue and self.position >= (self._length or 0) + self.queue.shift

    @property
    def may_end(self) -> bool:
        """Whether an end token counts here."""
        return self._committed and self._matcher.accepts

    def gap(self, most: int) -> int:
        """Positions, at most as many, before the next anchor is due."""
        due = self.queue.due()
        return most if due is None else max(0, min(most, due - self.position))

    def masked(self, logits: Logits, greedy: bool) -> Logits:
        """The logits of tokens that may follow, minus infinity elsewhere; for greedy decoding only of as many
        as are likelier than the first that may: a mask costs more than to ask for a few tokens.
        """
        barred = [] if self.may_end else [id_ for id_ in self._eos if id_ < len(logits)]
        held = logits
        for tried in range(_TRIES * greedy):
            top = int(held.argmax())
            if top not in barred and self._matcher.allows(top):
                return held
            held = held if tried else logits.copy()
            held[top] = -np.inf
        held = self._matcher.masked(logits)
        held[barred] = -np.inf
        return held

    def count(self, stats: FillStats) -> None:
        """Writes what has become of the anchors so far."""
        stats.realigned, stats.dropped = self.queue.realigned, self.queue.dropped


class Constrained(Decoder):
    """Every anchor is taken that the grammar allows, at its place or behind it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert self.options.grammar is not None
        room = self.engine.context - len(self.prompt)
        self.plan = Plan(self.options.grammar, self.anchor_set, self.rule, room, self.options.max_tokens)
        self.stats.forced = self.stats.forced or 0
        for id_ in self.text[len(self.prompt) :]:
            self.plan.take(id_)

    def answer(self) -> Iterator[Token]:
        plan = self.plan
        while True:
            run = list(self._known())
            stop = plan.stop
            slots = [slot for slot, _ in run]
            if stop is None:
                slots += [*self._draft(plan.gap(self.options.max_draft), slots), UNKNOWN]
            self.stats.drafted += max(0, len(slots) - len(run) - 1)
            scored = self.options.score_anchors
            wanted = [i for i, slot in enumerate(slots) if i >= len(run) or (slot.anchor and scored)]
            predictions = self.predictions(slots, wanted)
            plan.count(self.stats)
            for slot, source in run:
                score = log_prob(next(predictions), slot.id) if slot.anchor and scored else None
                yield self.emit(slot.id, source, score)
            if stop is not None:
                plan.queue.end()
                plan.count(self.stats)
                self.stats.stop = stop
                return
            for slot in islice(slots, len(run), None):
                if slot is not slots[len(run)] and (plan.known() or plan.stop):
                    self.forget_the_rest()
                    break
                logits = next(predictions)
                token = self.choose(slot, logits, plan.masked(logits, not self.options.sampling))
                if token is None:
                    plan.queue.end()
                    plan.count(self.stats)
                    return
                if not plan.fits(token):
                    plan.close()
                    self.forget_the_rest()
                    break
                plan.take(token)
                yield self.emit(token, Source.FILL, log_prob(logits, token))
                if token != slot.id:
                    self.forget_the_rest()
                    break

    def _known(self) -> Iterator[tuple[Slot, Source]]:
        """The run of tokens that need no model, which the plan has then taken."""
        while (known := self.plan.known()) is not None:
            id_, source = known
            self.stats.forced = (self.stats.forced or 0) + (source is Source.GRAMMAR)
            self.plan.take(id_)
            yield Slot(id_, source is Source.ANCHOR), source

    @property
    def barred(self) -> list[int]:
        return [] if self.plan.may_end else self.eos


def kept(
    tokens: list[Token],
    grammar: CompiledGrammar,
    anchors: AnchorSet,
    rule: Ending,
    room: int,
    most: int | None,
) -> int:
    """Number of leading tokens that the answer with these anchors has as well (see `refine`).

    A token of the model is its own choice given what is before it, where the plan has none, and where an end
    token that other anchors may have barred does not count.
    """
    plan = Plan(grammar, anchors, rule, room, most)
    for token in tokens:
        known = plan.known()
        same = (
            known[0] == token.id
            if known is not None
            else token.source is Source.FILL and not plan.may_end and plan.fits(token.id)
        )
        if plan.stop is not None or not same:
            return token.position
        plan.take(token.id)
    return len(tokens)
