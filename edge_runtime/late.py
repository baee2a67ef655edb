"""An answer that starts before its payload has arrived.

Knows how to begin with plain greedy decoding, and how to go on once the anchors are there: what they
contradict is taken back, the rest stands. In the end the answer is the one that a payload in time would have
given. Does not know networks: the payload is a future that somebody else fulfils.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import NamedTuple

from edge_runtime.endings import ending
from edge_runtime.engine import Engine
from edge_runtime.forced import FillOptions, FillStats, Token, fill
from payload import AnchorSet, Contract
from payload.anchors import MAX_CANVAS


class Cut(NamedTuple):
    """The tokens at `position` and after it are taken back."""

    position: int


def fill_late(
    engine: Engine,
    prompt_ids: Sequence[int],
    payload: Future[AnchorSet],
    contract: Contract,
    options: FillOptions | None = None,
    stats: FillStats | None = None,
    *,
    patience: float | None = None,
) -> Generator[Token | Cut]:
    """Yields greedy tokens until the payload is there, then at most one Cut, then the forced answer's rest.

    Tokens that stand keep the source they were given. Where the greedy answer ends first, it waits for the
    payload, at most `patience` seconds if that is not None, and is complete without it after that. Raises
    what `fill` does, and what the future was given in place of anchors.
    """
    options = options or FillOptions()
    stats = stats if stats is not None else FillStats()
    nothing = AnchorSet((), (), min(engine.context, MAX_CANVAS), contract)
    answer: list[int] = []
    greedy = fill(engine, prompt_ids, nothing, options, stats)
    try:
        while not payload.done():
            token = next(greedy, None)
            if token is None:
                break
            if token.position >= 0:
                answer.append(token.id)
            yield token
    finally:
        greedy.close()
    try:
        anchors = payload.result(patience)
    except FutureTimeoutError:
        if payload.done():
            raise  # it is what the payload's maker failed with
        return
    rule = ending(anchors, engine.context - len(prompt_ids), options.max_tokens)
    forced = dict(zip(anchors.positions, anchors.ids, strict=True))
    stands = next((p for p, id_ in enumerate(answer) if forced.get(p, id_) != id_), len(answer))
    stands = min(stands, rule.end)
    if stands < len(answer):
        yield Cut(stands)
    stats.stop = None
    quiet = replace(options, echo_prompt=False)
    yield from fill(engine, prompt_ids, anchors, quiet, stats, answered=answer[:stands])
