"""An answer that starts before its payload has arrived, and is refined as better ones come.

Knows how to begin with plain greedy decoding, and how to go on whenever anchors have come: what they
contradict is taken back, the rest stands. In the end the answer is the one that the last payload, had it been
there in time, would have given. Does not know networks: somebody else feeds it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from threading import Condition
from typing import NamedTuple

from edge_runtime.decode.endings import Ending, ending
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.engine.base import Engine
from payload import AnchorSet, Contract
from payload.anchors import MAX_CANVAS


class Retract(NamedTuple):
    """The tokens at `position` and after it are taken back."""

    position: int


class AnchorFeed:
    """Anchors as they come, each set in place of the one before it. For one reader and one writer in two
    threads.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._latest: AnchorSet | None = None
        self._closed = False
        self._error: BaseException | None = None
        self.version = 0
        """Grows with every set, and with an error."""

    def put(self, anchors: AnchorSet) -> None:
        with self._changed:
            self._latest = anchors
            self.version += 1
            self._changed.notify_all()

    def close(self, error: BaseException | None = None) -> None:
        """No more will come; the reader is given the error, if there is one."""
        with self._changed:
            self._closed, self._error = True, error
            self.version += error is not None
            self._changed.notify_all()

    def newer(self, version: int, patience: float | None = None) -> tuple[int, AnchorSet] | None:
        """The latest set and its version, where that is beyond `version`.

        Waits for one while more may come, at most `patience` seconds if that is not None; then gives None.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.version > version or self._closed, patience)
            if self._error is not None:
                raise self._error
            if self.version == version or self._latest is None:
                return None
            return self.version, self._latest


def fill_from_future(
    engine: Engine,
    prompt_ids: Sequence[int],
    payload: Future[AnchorSet],
    contract: Contract,
    options: FillOptions | None = None,
    stats: FillStats | None = None,
    *,
    patience: float | None = None,
) -> Generator[Token | Retract]:
    """`fill_refined` for a single payload, which somebody promises: there is at most one Retract.

    Raises what `fill` does, and what the future was given in place of anchors.
    """
    feed = AnchorFeed()

    def take(done: Future[AnchorSet]) -> None:
        error = CancelledError() if done.cancelled() else done.exception()
        if error is None:
            feed.put(done.result())
        feed.close(error)

    payload.add_done_callback(take)
    return fill_refined(engine, prompt_ids, feed, contract, options, stats, patience=patience)


def fill_refined(
    engine: Engine,
    prompt_ids: Sequence[int],
    feed: AnchorFeed,
    contract: Contract,
    options: FillOptions | None = None,
    stats: FillStats | None = None,
    *,
    patience: float | None = None,
) -> Generator[Token | Retract]:
    """Yields greedy tokens until anchors are there, and whenever others come at most one Retract and
    the rest.

    Tokens that stand keep the source they were given. Where the answer ends first, it waits for what may
    still come, at most `patience` seconds each time if that is not None, and is complete without it after
    that. Raises what `fill` does, and what the feed was closed with.
    """
    options = options or FillOptions()
    stats = stats if stats is not None else FillStats()
    room = engine.context - len(prompt_ids)
    anchors = AnchorSet.empty(min(engine.context, MAX_CANVAS), contract)
    version, hold = 0, 0
    answer: list[Token] = []
    while True:
        known = [token.id for token in answer]
        stream = fill(engine, prompt_ids, anchors, options, stats, answered=known)
        try:
            while feed.version == version:
                token = next(stream, None)
                if token is None:
                    break
                if token.position >= 0:
                    answer.append(token)
                yield token
        finally:
            stream.close()
        found = feed.newer(version, patience)
        if found is None:
            return
        version, later = found
        rule = ending(later, room, options.max_tokens)
        stands = _standing(answer, anchors, later, rule, hold, options.lookahead)
        if stands < len(answer):
            yield Retract(stands)
            del answer[stands:]
        anchors, hold = later, rule.hold
        options = replace(options, echo_prompt=False)
        stats.stop = None


def _standing(
    answer: Sequence[Token], before: AnchorSet, now: AnchorSet, rule: Ending, hold: int, lookahead: int
) -> int:
    """How many of the answer's tokens are those that `now` would have given.

    Filled tokens are the model's own choice after all that precedes them, whatever was forced before; a token
    that was forced and is no longer may be another. With a lookahead, so may be one chosen in sight of an
    anchor. hold: up to where end tokens were held back under `before`.
    """
    forced = now.by_position
    stands = min(len(answer), rule.end)
    if rule.hold < hold:
        stands = min(stands, rule.hold)  # behind it, an end may have been held back that now counts
    for token in answer[:stands]:
        wanted = forced.get(token.position)
        if wanted is None:
            near = _near(now, token.position, lookahead) or _near(before, token.position, lookahead)
            if token.source is Source.ANCHOR or near:
                return token.position
        elif wanted != token.id:
            return token.position
    return stands


def _near(anchors: AnchorSet, position: int, lookahead: int) -> bool:
    """Whether an anchor is in sight behind a position."""
    following = bisect_left(anchors.positions, position)
    return following < len(anchors) and anchors.positions[following] - position <= lookahead
