"""python -m lab.benches.second_turn: what keeping the cache between a conversation's turns is worth.

The time to the first token of a turn in a session that goes on, over that in a session without a cache, which
reads the whole conversation anew; the two take turns. Responsible for these times. Not responsible for
sessions (see `edge_runtime.session`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from lab.benches.first_token import QUESTIONS, SYSTEM, TurnBench, compared, tell
from lab.tables import Row


def first_token(edge: EdgeRuntime, session: EdgeSession, question: str, options: FillOptions) -> float:
    """Seconds from the question to the first token; the rest of the answer is written too."""
    started = time.perf_counter()
    answer = session.ask(question, options)
    next(answer)
    seconds = time.perf_counter() - started
    for _ in answer:
        pass
    return seconds


def times(
    edge: EdgeRuntime, turns: int, repeat: int, tokens: int, tell: Callable[[str], None] = lambda line: None
) -> list[Row]:
    """A row for each turn: median milliseconds with the cache and without, and their ratio."""
    options = edge.options(max_tokens=tokens)
    kept: list[list[float]] = [[] for _ in range(turns)]
    anew: list[list[float]] = [[] for _ in range(turns)]
    lengths = [0] * turns
    for number in range(repeat + 1):
        edge.engine.rewind(0)
        session = EdgeSession(edge, SYSTEM)
        for turn in range(turns):
            question, copy = QUESTIONS[turn % len(QUESTIONS)], session.clone()
            lengths[turn] = len(edge.prompt_ids(session.prompt(question, options)[0]))
            here = first_token(edge, session, question, options)
            edge.engine.rewind(0)
            there = first_token(edge, copy, question, options)  # and leaves the same cache behind
            if number:  # the first round warms up
                kept[turn].append(here)
                anew[turn].append(there)
        tell(f"round {number} of {repeat}")
    return [
        {"turn": turn + 1, "tokens of the prompt": lengths[turn]}
        | compared("cache kept", kept[turn], anew[turn])
        for turn in range(turns)
    ]


main = TurnBench(
    "second_turn",
    "The second turn",
    "Time to the first token of a turn, with the cache of the turns before and without.",
    "a turn's",
    20,
    "conversations",
    partial(times, tell=tell),
).main


if __name__ == "__main__":
    sys.exit(main())
