"""python -m lab.benches.second_turn: what keeping the cache between a conversation's turns is worth.

The time to the first token of a turn in a session that goes on, over that in a session without a cache, which
reads the whole conversation anew; the two take turns. Responsible for these times. Not responsible for
sessions (see `edge_runtime.session`).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from common.cli import CommandParser, run_command
from edge_runtime.decode.forced import FillOptions
from edge_runtime.fill import positive
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from lab.machine import machine
from lab.report import write_tables
from lab.store import Store
from lab.tables import Row, Table

SYSTEM = "You are a helpful assistant. Answer in one or two sentences."
QUESTIONS = (
    "What is the capital of Japan?",
    "And which river runs through it?",
    "How many people live there?",
    "What should I see there in two days?",
    "What is the weather like in April?",
    "Thank you. Which of these would you do first?",
)


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
    options = edge.options(max_tokens=tokens, speculate="off")
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
    rows: list[Row] = []
    for turn in range(turns):
        with_cache, without = (1e3 * statistics.median(of[turn]) for of in (kept, anew))
        ratios = [a / b for a, b in zip(kept[turn], anew[turn], strict=True)]
        rows.append(
            {
                "turn": turn + 1,
                "tokens of the prompt": lengths[turn],
                "ms, cache kept": with_cache,
                "ms, whole text anew": without,
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.second_turn",
        description="Time to the first token of a turn, with the cache of the turns before and without.",
        epilog="example:\n  python -m lab.benches.second_turn testbed-qwen -o second_turn/ --threads 2",
    )
    parser.add_argument("bundle", help="folder or name of a model bundle")
    parser.add_argument("-o", "--output", type=Path, required=True, help="results folder")
    parser.add_argument("--variant", help="default: the bundle's own")
    parser.add_argument("--threads", type=positive, help="default: one for each fast core")
    parser.add_argument("--turns", type=positive, default=4, help="(4)")
    parser.add_argument("--tokens", type=positive, default=32, help="of an answer, at most (32)")
    parser.add_argument("--repeat", type=positive, default=20, help="conversations (20)")
    args = parser.parse_args(argv)

    def run() -> None:
        from edge_runtime.bundle.lookup import find_bundles

        edge = EdgeRuntime.open(find_bundles("", args.bundle)[0], args.variant, threads=args.threads)
        rows = times(
            edge, args.turns, args.repeat, args.tokens, lambda line: print(line, file=sys.stderr, flush=True)
        )
        name = f"{edge.bundle.path.name} {edge.bundle.variant_name}, {edge.threads} threads"
        said = f"python -m lab.benches.second_turn {edge.bundle.path.name} --repeat {args.repeat}; {name}; "
        settings = {name: getattr(args, name) for name in ("bundle", "variant", "turns", "tokens")}
        title = f"Milliseconds to a turn's first token, answers of at most {args.tokens} tokens"
        table = Table.of("turns", title, rows, "Medians; a ratio is of the two runs of one round.")
        write_tables(Store(args.output, settings), "The second turn", [said + machine()], [table])

    return run_command("second_turn", run)


if __name__ == "__main__":
    sys.exit(main())
