"""Greedy speculative decoding: drafts verified by one pass of the target each, and what they save.

The text is the target's own whatever is drafted: a draft counts up to its first token that is not the
target's, whose own token stands there instead. Not responsible for where drafts come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from edge_runtime.engine.base import Engine, common_prefix

Draft = Callable[[Sequence[int], int], Sequence[int]]
"""At most so many tokens that may follow a text."""


@dataclass
class Speculated:
    """An answer and its cost. passes, computed: of the target, calls and tokens run; drafted, accepted:
    tokens of the drafts, and those of them that were the target's.
    """

    ids: list[int] = field(default_factory=list)
    passes: int = 0
    computed: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0


def speculate(
    engine: Engine,
    prompt: Sequence[int],
    ends: Collection[int],
    room: int,
    draft: Draft = lambda text, wanted: (),
    most: int = 0,
) -> Speculated:
    """The target's greedy answer of at most `room` tokens, from an empty cache, without its end token.

    most: tokens of a draft.
    """
    found, text, started = Speculated(), list(prompt), time.perf_counter()
    engine.rewind(0)
    while len(found.ids) < room:
        left = room - len(found.ids)
        guess = list(draft(text, min(most, left)))
        ids = [*text[engine.length :], *guess]
        # Each row predicts the token behind it; the last token of a draft that ends the answer needs no pass.
        rows = range(len(ids) - len(guess) - 1, len(ids) - (len(guess) == left))
        logits = engine.append(ids[: rows[-1] + 1], rows)
        found.passes += 1
        found.computed += rows[-1] + 1
        found.drafted += len(guess)
        for index, token in enumerate(map(int, logits.argmax(-1))):
            if token in ends:
                found.seconds = time.perf_counter() - started
                return found
            text.append(token)
            found.ids.append(token)
            if index == len(guess) or token != guess[index]:
                break
            found.accepted += 1
        engine.rewind(min(engine.length, len(text) - 1))
    found.seconds = time.perf_counter() - started
    return found


class DraftModel:
    """Drafts with a small autoregressive model, one pass a token: standard speculative decoding.

    engine: with the target's vocabulary; its cache belongs to this. computed: tokens that it has run.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.computed = 0

    def __call__(self, text: Sequence[int], wanted: int) -> list[int]:
        """At most `wanted` tokens after the text, as many as the model's context holds."""
        engine, ids = self._engine, list(text)
        engine.rewind(min(common_prefix(engine.tokens, ids), len(ids) - 1))
        for _ in range(min(wanted, engine.context - len(ids) + 1)):
            pending = ids[engine.length :]
            self.computed += len(pending)
            ids.append(int(engine.append(pending, [len(pending) - 1])[0].argmax()))
        return ids[len(text) :]
