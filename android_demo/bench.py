"""python -m android_demo.bench: milliseconds per token of the Python and of the Kotlin runtime.

Both runtimes fill the same payload of the shipped bundle in alternation, including prompt, text and log
probabilities, so that other load on the machine affects both. The answers must be equal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from android_demo import jvm
from android_demo.errors import BuildError
from common.cli import CommandParser, run_command
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet, Extras, Shared, encode

PROMPT = "How old are the people of Ecuador?"
MAX_RATIO = 1.25
WARM_UP = 30

_EPILOG = """\
example: python -m android_demo.bench --tokens 96 --rounds 60

exit codes: 0 within the limit, 1 slower or different ids, 2 wrong usage, no JDK or a failed build,
            4 bad or missing model
"""


@dataclass
class Result:
    """Median and minimum over the rounds, in milliseconds per token."""

    python: float
    kotlin: float
    python_best: float
    kotlin_best: float
    rounds: int
    tokens: int
    equal: bool

    @property
    def ratio(self) -> float:
        return self.kotlin / self.python


class KotlinProcess:
    """The Kotlin runtime in a separate process; one fill at a time."""

    def __init__(self, bundle: Path, variant: str, threads: int) -> None:
        command = ["java", "-Xmx512m", "-cp", jvm.class_path(), "inversespec.edge.BenchMainKt"]
        self._process = subprocess.Popen(
            [*command, str(bundle), variant, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._out, self._in = self._process.stdout, self._process.stdin
        if not self._out.readline().startswith("ready"):
            raise BuildError("the Kotlin runtime did not start: run without --no-build")

    def fill(self, data: bytes) -> tuple[float, list[int]]:
        """Duration in milliseconds and token ids of filling a payload that carries its prompt."""
        print(data.hex(), file=self._in, flush=True)
        milliseconds, _, ids = self._out.readline().partition(" ")
        return float(milliseconds), [int(each) for each in ids.split(",")]

    def close(self) -> None:
        self._in.close()
        self._process.wait(30)


def measure(bundle: Path, variant: str | None, threads: int, tokens: int, rounds: int) -> Result:
    """Times `rounds` fills of `tokens` tokens in both runtimes. Raises EdgeError, BuildError."""
    edge = EdgeRuntime.open(bundle, variant, threads=threads, prepack=False)
    options = edge.options()
    # One anchor and a known length: the answer has exactly `tokens` tokens, all but one of them decoded.
    contract = edge.bundle.contract
    ids = edge.prompt_ids(PROMPT)
    anchors = AnchorSet((0,), (contract.vocab_size // 2,), tokens, contract, tokens)
    data = encode(anchors, Shared(contract, ids), extras=Extras(PROMPT))

    def python() -> tuple[float, list[int]]:
        before = time.perf_counter()
        stream = edge.text_stream()
        found, parts = [], []
        for token in edge.fill(edge.read(data), options):
            found.append(token.id)
            parts.append(stream.push(token.id))
        return (time.perf_counter() - before) * 1e3, found

    kotlin = KotlinProcess(bundle, edge.bundle.variant_name, threads)
    try:
        for _ in range(WARM_UP):
            kotlin.fill(data)
        python()
        times: tuple[list[float], list[float]] = ([], [])
        equal = True
        for _ in range(rounds):
            first, second = python(), kotlin.fill(data)
            times[0].append(first[0])
            times[1].append(second[0])
            equal = equal and first[1] == second[1]
    finally:
        kotlin.close()
    per_token = [[each / tokens for each in series] for series in times]
    return Result(*map(statistics.median, per_token), *map(min, per_token), rounds, tokens, equal)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m android_demo.bench",
        description="Time the Python and the Kotlin edge runtime on the same bundle, in alternation.",
        epilog=_EPILOG,
    )
    parser.add_argument("--bundle", type=Path, default=SHIPPED, help="default: the shipped one")
    parser.add_argument("--variant", metavar="NAME", help="default: the bundle's own")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument("--tokens", type=int, default=96, metavar="N", help="tokens per answer (default 96)")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="fills per runtime (default 40)")
    parser.add_argument("--no-build", action="store_true", help="use the classes of the last build")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return run_command("bench", lambda: _run(args), exit_codes={BuildError: 2})


def _run(args: argparse.Namespace) -> int:
    if lacking := jvm.missing():
        raise BuildError(lacking)
    if not args.no_build:
        jvm.compile_tests()
    found = measure(args.bundle, args.variant, args.threads, args.tokens, args.rounds)
    if args.json:
        print(json.dumps({**vars(found), "ratio": found.ratio}))
    else:
        print(f"{found.tokens} tokens, median of {found.rounds} fills, {args.threads} thread(s)")
        print(f"python  {found.python:.3f} ms per token (best {found.python_best:.3f})")
        print(f"kotlin  {found.kotlin:.3f} ms per token (best {found.kotlin_best:.3f})")
        ids = "equal" if found.equal else "DIFFERENT"
        print(f"ratio   {found.ratio:.2f} (at most {MAX_RATIO}); ids {ids}")
    return 0 if found.equal and found.ratio <= MAX_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
