"""Routing: the device writes and asks the cloud where it is unsure (as in R2R, arXiv 2505.21600).

Responsible for the router and the turns of an answer. Not responsible for either model.

R2R trains a router on tokens where two models part. Here the router is the device model's own probability: a
token below a threshold is asked for. On the tiny pair, whose device model was trained on facts drawn at
random, that is a very good router: it is unsure of what it cannot know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge_runtime.decode.sampling import Sampling, distribution
from edge_runtime.engine.base import Engine

CONFIDENT = 0.5
"""Probability from which the device keeps its own token."""


@dataclass(frozen=True)
class Routed:
    """An answer, and the positions of its tokens that were asked for; the end counts as one behind it."""

    ids: list[int]
    asked: list[int]


def route(
    engine: Engine,
    ask: Callable[[Sequence[int]], int],
    prompt_ids: Sequence[int],
    ends: frozenset[int],
    room: int,
    confident: float = CONFIDENT,
) -> Routed:
    """The device's greedy answer of at most `room` tokens, with the cloud's tokens where it is unsure.

    ask: the cloud's token after a text, which may be an end.
    """
    ids: list[int] = []
    asked: list[int] = []
    engine.rewind(0)
    pending = list(prompt_ids)
    while len(ids) < room:
        chances = distribution(engine.append(pending, [len(pending) - 1])[0], Sampling())
        token = int(chances.argmax())
        if chances[token] < confident:
            asked.append(len(ids))
            token = ask([*prompt_ids, *ids])
        if token in ends:
            break
        ids.append(token)
        pending = [token]
    return Routed(ids, asked)
