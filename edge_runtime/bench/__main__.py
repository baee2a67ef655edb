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

from common.cli import option, run_options
from edge_runtime.bench.llama_cpp import LlamaEngine
from edge_runtime.bench.measure import Bench, repetitions
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.commands import positive
from edge_runtime.engine.base import Engine
from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.system import performance_cores, resident_memory

_PEER = "llama.cpp:"

_EPILOG = """\
examples:
  python -m edge_runtime.bench bundles/qwen2.5-0.5b
  python -m edge_runtime.bench bundles/qwen2.5-0.5b --variant int4 --vs llama.cpp:qwen2.5-0.5b-q4_0.gguf

Milliseconds a token, of a variant in its own and in portable arithmetic: prompts, single tokens after
others, chunks of known tokens, whole answers of which a share is anchored. All run in the same process, one
repetition of each in turn; in brackets, the first one's time over theirs, so below 1 the first is faster.
Energy is not measured.
"""


@dataclass(frozen=True)
class BenchOptions:
    """Time a bundle's variants on this device."""

    bundle: str | None = option(None, "default: installed, or the shipped", flags=("bundle",), nargs="?")
    variant: list[str] | None = option(
        None, "which of its variants; may be given again; default: all", action="append", metavar="NAME"
    )
    vs: list[str] | None = option(
        None, f"also time {_PEER}FILE.gguf; may be given again", action="append", metavar="PEER"
    )
    threads: int | None = option(None, "default: one for each fast core", positive)
    repeat: int = option(5, "default: 5", positive)
    length: int = option(64, "tokens of answers", positive)
    no_prepack: bool = option(False, "do not use prepacked weights")
    json: bool = option(False, "print one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return run_options("edge_runtime.bench", _run, BenchOptions, argv, _EPILOG)


def _run(args: BenchOptions) -> None:
    report = measure(args)
    print(json.dumps(report, indent=1) if args.json else as_markdown(report))


def measure(args: BenchOptions) -> dict[str, Any]:
    """Every measurement, with progress on a terminal: the bundle, threads, seconds of loading and bytes
    resident by engine, and figures (milliseconds a token and their standard deviation by test and engine).
    """
    bundle = Bundle.open(find_bundles("", args.bundle)[0], verify=False)
    threads = args.threads or performance_cores()
    benches: list[Bench] = []
    loading: dict[str, float] = {}
    memory: dict[str, dict[str, int]] = {}
    for name in [*(args.variant or bundle.manifest.variants), *(args.vs or ())]:
        _progress(f"loading {name}")
        before, held = time.perf_counter(), resident_memory()
        engines = _opened(args, bundle, name, threads)
        engines[name].append([0])
        loading[name] = time.perf_counter() - before
        memory[name] = {kind: size - held.get(kind, 0) for kind, size in resident_memory().items()}
        benches += [Bench(label, engine, bundle.contract) for label, engine in engines.items()]
    if args.length >= benches[0].engine.context:
        raise UsageError(f"--length: expected less than {benches[0].engine.context}, found {args.length}")
    figures = []
    for tests in zip(*(bench.trials(args.length) for bench in benches), strict=False):
        _progress(tests[0].name)
        for test, seconds in zip(tests, repetitions(tests, args.repeat), strict=True):
            each = [1e3 * value / test.tokens for value in seconds]
            deviation = statistics.stdev(each) if len(each) > 1 else 0.0
            figure = {"test": test.name, "engine": test.engine, "ms": statistics.fmean(each)}
            figures.append({**figure, "deviation": deviation})
    _progress("")
    report = {"bundle": bundle.path.name, "threads": threads, "seconds to load": loading}
    return {**report, "bytes": memory, "figures": figures}


def _opened(args: BenchOptions, bundle: Bundle, name: str, threads: int) -> dict[str, Engine]:
    """The engine of a variant or a peer; and of a variant's portable graph."""
    if name not in (args.vs or ()):
        edge = EdgeRuntime.open(bundle.path, name, threads=threads, prepack=not args.no_prepack)
        second = bundle.manifest.variants[name].portable not in (None, bundle.manifest.variants[name].graph)
        return {name: edge.engine, **({f"{name} portable": edge.predictive_model.engine} if second else {})}
    if not name.startswith(_PEER):
        raise UsageError(f"--vs: expected {_PEER}FILE.gguf, found {name!r}")
    file, size = Path(name.removeprefix(_PEER)), bundle.manifest.model.vocab_size
    return {name: LlamaEngine(file, size, context=bundle.context, threads=threads)}


def as_markdown(report: dict[str, Any]) -> str:
    """The figures as a table, a column for each engine."""
    names = list(dict.fromkeys(figure["engine"] for figure in report["figures"]))
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
