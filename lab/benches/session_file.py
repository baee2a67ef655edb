"""python -m lab.benches.session_file: what a saved session's cache is worth against reading its text anew.

The time to the first token after a start: with the file of a session read, cache and all, over that with its
messages alone. The file is in the system's page cache, as after a save. Responsible for these times. Not
responsible for sessions (see `edge_runtime.session`).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from lab.benches.first_token import QUESTIONS, SYSTEM, TurnBench, compared
from lab.tables import Row


def first_token(session: EdgeSession, question: str, options: FillOptions) -> float:
    """Seconds from the question to the first token; the rest is not written."""
    started = time.perf_counter()
    answer = session.ask(question, options)
    next(answer)
    answer.close()
    return time.perf_counter() - started


def times(edge: EdgeRuntime, file: Path, turns: int, repeat: int, tokens: int) -> list[Row]:
    """A row for each number of turns said: the file's size, and median milliseconds with it and without."""
    options = edge.options(max_tokens=tokens)
    session = EdgeSession(edge, SYSTEM)
    rows: list[Row] = []
    for turn in range(turns):
        for _ in session.ask(QUESTIONS[turn % len(QUESTIONS)], options):
            pass
        question = QUESTIONS[(turn + 1) % len(QUESTIONS)]
        kept: list[float] = []
        anew: list[float] = []
        started = time.perf_counter()
        session.save(file)
        saving = time.perf_counter() - started
        for number in range(repeat + 1):
            edge.engine.rewind(0)
            started = time.perf_counter()
            loaded = EdgeSession.load(file, edge)
            reading = time.perf_counter() - started
            here = reading + first_token(loaded, question, options)
            edge.engine.rewind(0)
            there = first_token(EdgeSession(edge, messages=session.messages), question, options)
            if number:  # the first round warms up
                kept.append(here)
                anew.append(there)
        session = EdgeSession.load(file, edge)
        about: Row = {"turns": turn + 1, "tokens": len(edge.prompt_ids(session.messages))}
        about |= {"MB": file.stat().st_size / 1e6, "ms to save": 1e3 * saving}
        rows.append(about | compared("from the file", kept, anew))
    return rows


def in_a_folder(edge: EdgeRuntime, turns: int, repeat: int, tokens: int) -> list[Row]:
    """`times` with a file that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        return times(edge, Path(folder) / "talk", turns, repeat, tokens)


main = TurnBench(
    "session_file",
    "A session's file",
    "Time to the first token of a turn, with a session's file and with its text alone.",
    "the next turn's",
    5,
    "of each",
    in_a_folder,
).main


if __name__ == "__main__":
    sys.exit(main())
