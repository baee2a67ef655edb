"""python -m lab.benches.session_file: what a saved session's cache is worth against reading its text anew.

The time to the first token after a start: with the file of a session read, cache and all, over that with its
messages alone. The file is in the system's page cache, as after a save. Responsible for these times. Not
responsible for sessions (see `edge_runtime.session`).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common.cli import CommandParser, run_command
from edge_runtime.decode.forced import FillOptions
from edge_runtime.fill import positive
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from lab.benches.second_turn import QUESTIONS, SYSTEM
from lab.machine import machine
from lab.report import write_tables
from lab.store import Store
from lab.tables import Row, Table


def first_token(session: EdgeSession, question: str, options: FillOptions) -> float:
    """Seconds from the question to the first token; the rest is not written."""
    started = time.perf_counter()
    answer = session.ask(question, options)
    next(answer)
    answer.close()
    return time.perf_counter() - started


def times(edge: EdgeRuntime, file: Path, turns: int, repeat: int, tokens: int) -> list[Row]:
    """A row for each number of turns said: the file's size, and median milliseconds with it and without."""
    options = edge.options(max_tokens=tokens, speculate="off")
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
        ratios = [a / b for a, b in zip(kept, anew, strict=True)]
        rows.append(
            {
                "turns": turn + 1,
                "tokens": len(edge.prompt_ids(session.messages)),
                "MB": file.stat().st_size / 1e6,
                "ms to save": 1e3 * saving,
                "ms, from the file": 1e3 * statistics.median(kept),
                "ms, whole text anew": 1e3 * statistics.median(anew),
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.session_file",
        description="Time to the first token of a turn, with a session's file and with its text alone.",
        epilog="example:\n  python -m lab.benches.session_file testbed-qwen -o session_file/ --threads 2",
    )
    parser.add_argument("bundle", help="folder or name of a model bundle")
    parser.add_argument("-o", "--output", type=Path, required=True, help="results folder")
    parser.add_argument("--variant", help="default: the bundle's own")
    parser.add_argument("--threads", type=positive, help="default: one for each fast core")
    parser.add_argument("--turns", type=positive, default=4, help="(4)")
    parser.add_argument("--tokens", type=positive, default=32, help="of an answer, at most (32)")
    parser.add_argument("--repeat", type=positive, default=5, help="of each (5)")
    args = parser.parse_args(argv)

    def run() -> None:
        from edge_runtime.bundle.lookup import find_bundles

        edge = EdgeRuntime.open(find_bundles("", args.bundle)[0], args.variant, threads=args.threads)
        with tempfile.TemporaryDirectory() as folder:
            rows = times(edge, Path(folder) / "talk", args.turns, args.repeat, args.tokens)
        name = f"{edge.bundle.path.name} {edge.bundle.variant_name}, {edge.threads} threads"
        said = f"python -m lab.benches.session_file {edge.bundle.path.name} --repeat {args.repeat}; {name}; "
        settings = {name: getattr(args, name) for name in ("bundle", "variant", "turns", "tokens")}
        title = f"Milliseconds to the next turn's first token, answers of at most {args.tokens} tokens"
        table = Table.of("file", title, rows, "Medians; a ratio is of the two runs of one round.")
        write_tables(Store(args.output, settings), "A session's file", [said + machine()], [table])

    return run_command("session_file", run)


if __name__ == "__main__":
    sys.exit(main())
