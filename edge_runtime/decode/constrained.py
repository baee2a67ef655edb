"""The plan of an answer with a grammar: every token is one that it allows, whatever the anchors are.

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
from collections.abc import Iterable

import numpy as np

from edge_runtime.decode.endings import Stop, ending
from edge_runtime.decode.tokens import FillStats, Source
from edge_runtime.engine.base import Logits
from edge_runtime.errors import GrammarRoomError
from edge_runtime.grammar.alignment import AnchorQueue
from edge_runtime.grammar.matcher import CompiledGrammar
from payload import AnchorSet

_TRIES = 3
"""Likeliest tokens that are asked for before a mask is computed."""
_BYTES_A_TOKEN = 4
"""The most bytes of an ending that are looked for, a token of the room that there is."""


class GrammarPlan:
    """What is known of an answer's next token before the model runs (see `forced.AnchorPlan`).

    It depends on the grammar, the anchors and the tokens so far only. limit: most tokens of the answer. That
    is `max_tokens`, or what the payload's canvas says where None, but then never less than the answer needs.
    Raises GrammarRoomError where no sentence was found that fits, ContextError where the anchors do not.
    """

    def __init__(
        self, grammar: CompiledGrammar, anchors: AnchorSet, room: int, max_tokens: int | None = None
    ) -> None:
        self.rule = ending(anchors, room, max_tokens)
        self.eos = grammar.vocabulary.eos
        self.position = 0
        self._vocabulary = grammar.vocabulary
        self._matcher = grammar.matcher()
        canvas = anchors.canvas if max_tokens is None else max_tokens
        self._ending = grammar.ending(room * _BYTES_A_TOKEN, min(room, canvas))
        self._length = anchors.length or 0
        self._queue = AnchorQueue(anchors)
        self._forced: deque[int] = deque()
        self._closing: deque[int] | None = None
        self._known: tuple[int, Source] | None = None
        self._sought = False
        most = room if max_tokens is None else min(room, max_tokens)
        needed = None if self._ending.rest is None else self._count(self._ending.rest, most)
        if needed is None or needed > most:
            found = "found none" if needed is None else f"the shortest found has {needed}"
            raise GrammarRoomError(
                f"{grammar.grammar}: expected a sentence of at most {most} tokens, {found}. "
                "Raise --max-tokens or --context, or ask for less."
            )
        self.limit = min(most, max(needed, anchors.canvas)) if max_tokens is None else most

    def known(self) -> tuple[int, Source] | None:
        """The next token and its origin, where it needs no model. None also where the answer has ended."""
        if not self._sought:
            self._known, self._sought = self._find(), True
        return self._known

    def _find(self) -> tuple[int, Source] | None:
        if self.stop is not None:
            return None
        if self._closing is None:
            anchor = self._queue.next(self.position, self._may_write)
            if anchor is not None:
                return anchor, Source.ANCHOR
            if not self._forced:
                self._forced.extend(self._matcher.forced())
            if not self._forced and not self._matcher.gave_up:
                return None
            if self._forced and self.fits(self._forced[0]):
                return self._forced[0], Source.GRAMMAR
            self._close()
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

    def _close(self) -> None:
        """From here on the ending that is known is written."""
        assert self._ending.rest is not None
        self._closing = deque(self._vocabulary.tokens.encode_bytes(self._ending.rest))
        self._sought = False

    def take(self, id_: int) -> None:
        """The answer goes on with a token: a known one, or one that the model wrote."""
        known = self.known()
        self._sought = False
        if self._closing:
            self._closing.popleft()
            self.position += 1
            return
        if known == (id_, Source.ANCHOR):
            self._queue.took(self.position)
        if self._forced and self._forced[0] == id_:
            self._forced.popleft()
        else:
            self._forced.clear()
        self._ending.take(self._vocabulary.token_bytes(id_))
        self.position += 1
        self._matcher.take(id_)

    def offer(self, id_: int) -> bool:
        """Takes the model's token where an ending behind it still fits; else the ending known is written."""
        if not self.fits(id_):
            self._close()
            return False
        self.take(id_)
        return True

    @property
    def stop(self) -> Stop | None:
        """The reason why the answer ends here; None where it goes on."""
        if self._closing is not None:
            return None if self._closing else Stop.LIMIT
        if self.position >= self.limit:
            return Stop.LIMIT
        if self._matcher.over:
            return Stop.GRAMMAR
        return self.rule.stop if self.rule.stop is not Stop.LIMIT and self.may_end else None

    @property
    def may_end(self) -> bool:
        """Whether an end token counts here: where a sentence ends, and nothing that the cloud has committed
        remains, be it an anchor or more of a stated length.
        """
        committed = not self._queue and self.position >= self._length + self._queue.shift
        return committed and self._matcher.accepts

    def allowed(self, logits: Logits, greedy: bool) -> Logits:
        """The logits, minus infinity for tokens that may not follow; for greedy decoding only for as many as
        are likelier than the first that may: a mask costs more than to ask for a few tokens.
        """
        barred = [] if self.may_end else [id_ for id_ in self.eos if id_ < len(logits)]
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

    def count(self, run: Iterable[tuple[int, Source]], stats: FillStats) -> None:
        """Writes what has become of the anchors so far; run: the tokens that the plan gave for one pass."""
        if self.stop is not None:
            self._queue.end()
        stats.forced = (stats.forced or 0) + sum(source is Source.GRAMMAR for _, source in run)
        stats.realigned, stats.dropped = self._queue.realigned, self._queue.dropped
