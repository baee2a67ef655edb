"""python -m edge_runtime.bench: how fast a bundle's variants are on this device, beside a named peer.

Responsible for the command line and the table. Not responsible for measuring (see `measure`).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.cli import CommandParser, option, run_command
from edge_runtime.bench.llama_cpp import LlamaEngine
from edge_runtime.bench.measure import Bench, repetitions
from edge_runtime.bundle.bundle import Bundle, bundle_folder, read_manifest
from edge_runtime.engine.base import Engine
from edge_runtime.engine.genai_engine import GenaiEngine
from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.system import performance_cores, resident_memory
from payload import Contract

PEERS = "genai or llama.cpp:FILE.gguf"

_EPILOG = """\
examples:
  python -m edge_runtime.bench bundles/qwen2.5-0.5b
  python -m edge_runtime.bench bundles/qwen2.5-0.5b --variant int4 --vs llama.cpp:qwen2.5-0.5b-q4_0.gguf

Milliseconds a token: prompts, single tokens after others, chunks of known tokens, whole answers of which a
share is anchored. All run in the same process, one repetition of each in turn; in brackets, the first one's
time over theirs, so below 1 the first is faster. Energy is not measured.
"""


@dataclass(frozen=True)
class BenchOptions:
    """Everything that the command is given."""

    bundle: str = option("", "folder of the bundle", flags=("bundle",))
    variant: list[str] | None = option(
        None, "which of its variants; may be given again; default: all", str, action="append", metavar="NAME"
    )
    vs: list[str] | None = option(
        None, f"also time {PEERS}; may be given again", str, action="append", metavar="PEER"
    )
    threads: int | None = option(None, "default: one for each fast core", int, metavar="N")
    repeat: int = option(5, "default: 5", metavar="N")
    length: int = option(64, "tokens of answers: 64", metavar="N")
    no_prepack: bool = option(False, "do not use prepacked weights")
    json: bool = option(False, "print one JSON object")


def parser() -> CommandParser:
    result = CommandParser(
        prog="python -m edge_runtime.bench",
        description="Time a bundle's variants on this device.",
        epilog=_EPILOG,
    )
    result.declare(BenchOptions)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    args = parser().parse(BenchOptions, argv)
    return run_command("bench", lambda: print(_shown(args)))


def _shown(args: BenchOptions) -> str:
    report = measure(args)
    return json.dumps(report, indent=1) if args.json else as_markdown(report)


def measure(args: BenchOptions) -> dict[str, Any]:
    """Every measurement, with progress on a terminal: the bundle, threads, seconds of loading and bytes
    resident by engine, and figures (milliseconds a token and their standard deviation by test and engine).
    """
    for name, value in (("--repeat", args.repeat), ("--length", args.length), ("--threads", args.threads)):
        if value is not None and value < 1:
            raise UsageError(f"{name}: expected at least 1, found {value}")
    for peer in args.vs or ():
        if peer.partition(":")[0] not in ("genai", "llama.cpp"):
            raise UsageError(f"--vs: expected {PEERS}, found {peer!r}")
    threads = args.threads or performance_cores()
    benches: list[Bench] = []
    loading: dict[str, float] = {}
    memory: dict[str, dict[str, int]] = {}
    for name in [*(args.variant or read_manifest(bundle_folder(args.bundle)).variants), *(args.vs or ())]:
        _progress(f"loading {name}")
        before, held = time.perf_counter(), resident_memory()
        engine, contract = _opened(args, name, threads)
        engine.append([0])
        loading[name] = time.perf_counter() - before
        memory[name] = {kind: size - held.get(kind, 0) for kind, size in resident_memory().items()}
        benches.append(Bench(name, engine, contract))
    if args.length >= benches[0].engine.context:
        raise UsageError(f"--length: expected less than {benches[0].engine.context}, found {args.length}")
    figures = []
    for tests in zip(*(bench.trials(args.length) for bench in benches), strict=False):
        _progress(tests[0].name)
        for test, seconds in zip(tests, repetitions(tests, args.repeat), strict=True):
            each = [1e3 * value / test.tokens for value in seconds]
            figures.append(
                {
                    "test": test.name,
                    "engine": test.engine,
                    "ms": statistics.fmean(each),
                    "deviation": statistics.stdev(each) if len(each) > 1 else 0.0,
                }
            )
    _progress("")
    report = {"bundle": Path(args.bundle).name, "threads": threads, "seconds to load": loading}
    return {**report, "bytes": memory, "figures": figures}


def _opened(args: BenchOptions, name: str, threads: int) -> tuple[Engine, Contract]:
    """The engine of a variant or a peer, and the contract of its ids."""
    if name not in (args.vs or ()):
        edge = EdgeRuntime.open(args.bundle, name, threads=threads, prepack=not args.no_prepack)
        return edge.engine, edge.bundle.contract
    bundle = Bundle.open(args.bundle, args.variant[0] if args.variant else None)
    kind, _, path = name.partition(":")
    if kind == "genai":
        return GenaiEngine.open(bundle, threads=threads), bundle.contract
    shape = bundle.manifest.model
    engine = LlamaEngine(Path(path), shape.vocab_size, context=bundle.context, threads=threads)
    return engine, bundle.contract


def as_markdown(report: dict[str, Any]) -> str:
    """The figures as a table, a column for each engine."""
    names = list(report["seconds to load"])
    lines = [f"{report['bundle']}, {report['threads']} threads; milliseconds a token", ""]
    lines += [f"| test | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    rows: dict[str, list[float]] = {}
    for figure in report["figures"]:
        rows.setdefault(figure["test"], []).append(figure["ms"])
    for test, (ours, *theirs) in rows.items():
        cells = [f"{ours:.2f}", *(f"{ms:.2f} ({ours / ms:.2f})" for ms in theirs)]
        lines.append(f"| {test} | {' | '.join(cells)} |")
    lines.append("")
    for name, seconds in report["seconds to load"].items():
        sizes = ", ".join(f"{size / 1e6:.0f} MB {kind}" for kind, size in report["bytes"][name].items())
        lines.append(f"- {name}: loaded in {1e3 * seconds:.0f} ms; {sizes}")
    return "\n".join(lines)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
