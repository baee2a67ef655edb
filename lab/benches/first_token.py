"""Times to the first token of a turn: the command, the questions and the columns of two benchmarks.

Responsible for what `second_turn` and `session_file` share. Not responsible for what they time.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.cli import CommandParser, run_command
from edge_runtime.fill import positive
from edge_runtime.runtime import EdgeRuntime
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


def compared(here: str, kept: Sequence[float], anew: Sequence[float]) -> Row:
    """Columns of the seconds of rounds: median milliseconds `here` and of reading anew, and their ratio."""
    ratios = [a / b for a, b in zip(kept, anew, strict=True)]
    return {
        f"ms, {here}": 1e3 * statistics.median(kept),
        "ms, whole text anew": 1e3 * statistics.median(anew),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


@dataclass(frozen=True)
class TurnBench:
    """One of the benchmarks.

    name, title, about: of the module, its report and its help. when: which first token, in the table's title.
    repeat, of:         rounds by default, and what a round is.
    times:              a row a turn, of the model, turns, rounds and tokens of an answer at most.
    """

    name: str
    title: str
    about: str
    when: str
    repeat: int
    of: str
    times: Callable[[EdgeRuntime, int, int, int], list[Row]]

    def main(self, argv: Sequence[str] | None = None) -> int:
        command = f"python -m lab.benches.{self.name}"
        parser = CommandParser(
            prog=command,
            description=self.about,
            epilog=f"example:\n  {command} testbed-qwen -o {self.name}/ --threads 2",
        )
        parser.add_argument("bundle", help="folder or name of a model bundle")
        parser.add_argument("-o", "--output", type=Path, required=True, help="results folder")
        parser.add_argument("--variant", help="default: the bundle's own")
        parser.add_argument("--threads", type=positive, help="default: one for each fast core")
        parser.add_argument("--turns", type=positive, default=4, help="(4)")
        parser.add_argument("--tokens", type=positive, default=32, help="of an answer, at most (32)")
        parser.add_argument("--repeat", type=positive, default=self.repeat, help=f"{self.of} ({self.repeat})")
        args = parser.parse_args(argv)

        def run() -> None:
            from edge_runtime.bundle.lookup import find_bundles

            edge = EdgeRuntime.open(find_bundles("", args.bundle)[0], args.variant, threads=args.threads)
            rows = self.times(edge, args.turns, args.repeat, args.tokens)
            model = f"{edge.bundle.path.name} {edge.bundle.variant_name}, {edge.threads} threads"
            said = f"{command} {edge.bundle.path.name} --repeat {args.repeat}; {model}; {machine()}"
            settings = {name: getattr(args, name) for name in ("bundle", "variant", "turns", "tokens")}
            title = f"Milliseconds to {self.when} first token, answers of at most {args.tokens} tokens"
            table = Table.of("turns", title, rows, "Medians; a ratio is of the two runs of one round.")
            write_tables(Store(args.output, settings), self.title, [said], [table])

        return run_command(self.name, run)


def tell(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)
