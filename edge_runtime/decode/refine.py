"""Refinement: an answer that starts before its payload has arrived, corrected as payloads arrive.

Responsible for greedy decoding until there are anchors, and for continuing whenever new ones arrive: tokens
that they contradict are retracted, the others stay. The final answer is the one that the last payload would
have given from the start. Not responsible for networks: another thread fills the `AnchorFeed`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from threading import Condition
from typing import NamedTuple

from edge_runtime.decode.forced import FillOptions, FillStats, Plan, Source, Token, fill, plan_for
from edge_runtime.engine.base import Engine
from edge_runtime.engine.shared import SharedModel
from payload import AnchorSet, Contract
from payload.anchors import MAX_CANVAS


class Retract(NamedTuple):
    """Takes back the tokens at `position` and after it."""

    position: int


class AnchorFeed:
    """The latest anchors of an answer; each set replaces the one before it. Thread-safe for one writer and
    one reader.

    until: time (`time.monotonic`) after which none is taken any more; None for none.
    """

    def __init__(self, until: float | None = None) -> None:
        self._until = until
        self._changed = Condition()
        self._latest: AnchorSet | None = None
        self._closed = False
        self._taken = 0
        self._error: BaseException | None = None
        self.version = 0
        """Counts the sets so far, and an error."""

    @property
    def latest(self) -> AnchorSet | None:
        return self._latest

    def put(self, anchors: AnchorSet) -> None:
        with self._changed:
            if self._closed:
                return
            self._latest = anchors
            self.version += 1
            self._changed.notify_all()

    def close(self, error: BaseException | None = None) -> None:
        """No more sets follow; `newer` raises the error, if there is one."""
        with self._changed:
            self._closed, self._error = True, error
            self.version += error is not None
            self._changed.notify_all()

    def last(self, timeout: float | None = None) -> AnchorSet | None:
        """The last anchors: waits until the feed is closed, at most `timeout` seconds where not None."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout)
            if self._error is not None:
                raise self._error
            return self._latest

    def over(self) -> bool:
        """Whether its time has ended: no more sets are taken, nor those that the reader has not seen.

        To be called by the reader.
        """
        if self._until is None or time.monotonic() < self._until:
            return False
        with self._changed:
            self._closed, self.version = True, self._taken
        return True

    def newer(self, version: int, timeout: float | None = None) -> tuple[int, AnchorSet] | None:
        """The version and the set of the latest anchors, where newer than `version`.

        Waits for them until the feed is closed, at most `timeout` seconds where not None; then returns None.
        """
        if self._until is not None:
            left = max(0.0, self._until - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        with self._changed:
            self._changed.wait_for(lambda: self.version > version or self._closed, timeout)
            if self._error is not None:
                raise self._error
            if self.version == version or self._latest is None:
                return None
            self._taken = self.version
            return self.version, self._latest


def fill_refined(
    model: Engine | SharedModel,
    prompt_ids: Sequence[int],
    feed: AnchorFeed,
    contract: Contract,
    options: FillOptions | None = None,
    stats: FillStats | None = None,
    answered: Sequence[Token] = (),
    *,
    timeout: float | None = None,
    model_of: Callable[[], Engine | SharedModel] | None = None,
) -> Generator[Token | Retract]:
    """Yields greedy tokens until there are anchors; for every new set at most one Retract, and the rest.

    answered: first tokens of the answer, written without anchors; the stream continues after them.

    Tokens that are kept keep their source. At the end of the answer it waits for further sets until the feed
    is closed, at most `timeout` seconds for each where not None. model_of: the model for the latest set;
    what another one wrote is not kept. Raises what `fill` does, and the error
    that the feed was closed with.
    """
    options = options or FillOptions()
    stats = stats if stats is not None else FillStats()
    anchors = AnchorSet.empty(min(model.context, MAX_CANVAS), contract)
    version, suppressed = 0, 0
    answer = list(answered)
    while True:
        known = [token.id for token in answer]
        stream = fill(model, prompt_ids, anchors, options, stats, answered=known)
        try:
            while feed.version == version:
                token = next(stream, None)
                if token is None:
                    break
                answer.append(token)
                yield token
        finally:
            stream.close()
        found = feed.newer(version, timeout)
        if found is None:
            return
        version, anchors = found
        before, model = model, model_of() if model_of else model
        plan = plan_for(anchors, model.context - len(prompt_ids), options)
        kept = kept_by(plan, answer, suppressed if options.grammar is None else len(answer), model is before)
        if kept < len(answer):
            yield Retract(kept)
            del answer[kept:]
        suppressed = plan.rule.eos_from
        stats.stop = None


def kept_by(plan: Plan, answer: Sequence[Token], suppressed: int, same_model: bool = True) -> int:
    """Number of leading tokens of an answer that it has under this plan as well.

    A token of the model is its own choice given its prefix, whatever was forced before; a token that was
    forced and no longer is may differ, and so may one at which an end token counts that did not: those before
    `suppressed`.
    """
    for token in answer:
        known = plan.known()
        if plan.stop is not None:
            return token.position
        if known is not None:
            same = known[0] == token.id
        else:
            ends = plan.may_end and token.position < suppressed
            same = same_model and token.source is Source.FILL and not ends and plan.fits(token.id)
        if not same:
            return token.position
        plan.take(token.id)
    return len(answer)
