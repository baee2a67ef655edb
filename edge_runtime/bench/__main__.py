"""python -m edge_runtime.bench: speed and memory of a bundle on this device.

Responsible for the command line, recorded anchors, tables and plots. Not responsible for measuring (see
`measure`).
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from common.cli import CommandParser, option, run_command
from edge_runtime.bench.baselines import KINDS, genai_loop, open_baseline
from edge_runtime.bench.measure import (
    COVERAGES,
    DECODED,
    Bench,
    Figure,
    FillCase,
    Trial,
    answers,
    passes,
    timed,
)
from edge_runtime.decode.forced import FillOptions
from edge_runtime.engine.genai_engine import GRAPH, load_genai_model
from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.system import resident_memory
from payload import AnchorSet, PayloadError

FRACTIONS = ("0.1", "0.25")
DEPTHS = (0, 128, 512)
OURS = "onnxruntime"

_EPILOG = """\
examples:
  python -m edge_runtime.bench bundles/qwen2.5-0.5b
  python -m edge_runtime.bench bundles/qwen2.5-0.5b --variant int4 --threads 2 --plot fill.png
  python -m edge_runtime.bench bundles/qwen2.5-0.5b --traces traces.jsonl --format json
  python -m edge_runtime.bench bundles/qwen2.5-0.5b --vs genai --vs llama.cpp:qwen2.5-0.5b-q4_0.gguf

Baselines run in the same process, one repetition of each in turn. A ratio below 1 says that ours is faster.
A trace is a line of JSON with "prompt", "gen_len" and "anchors": {"0.1": [[position, id], ...], ...}.
Energy is not measured.
"""


@dataclass
class BenchReport:
    """The measurements of one run.

    seconds: of loading and of the first pass. memory: bytes by kind. ratios: ours over a baseline's.
    """

    bundle: str
    variant: str
    threads: int
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> str:
        data = {**vars(self), "figures": [figure._asdict() for figure in self.figures]}
        return json.dumps(data, indent=1)

    def as_csv(self) -> str:
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*Figure._fields, "milliseconds_per_token", "tokens_per_second"])
        for figure in self.figures:
            each = figure.seconds / max(figure.tokens, 1)
            writer.writerow([*figure, 1e3 * each, 1 / each])
        return out.getvalue().rstrip("\n")

    def as_md(self) -> str:
        lines = [f"{self.bundle}, {self.variant}, {self.threads} threads", ""]
        lines += ["| engine | test | ms | ms a token | tokens/s | passes |", "|---|---|---:|---:|---:|---:|"]
        for f in self.figures:
            each = f.seconds / max(f.tokens, 1)
            time_ms = f"{f.seconds * 1e3:.2f} ± {f.deviation * 1e3:.2f}"
            lines.append(
                f"| {f.engine} | {f.test} | {time_ms} | {each * 1e3:.2f} | {1 / each:.1f} | {f.passes} |"
            )
        lines += [""]
        lines += [f"- {name}: {value * 1e3:.0f} ms" for name, value in self.seconds.items()]
        lines += [f"- {name} memory: {value / 1e6:.0f} MB" for name, value in self.memory.items()]
        lines += [f"- {name}: {value:.3f}" for name, value in self.ratios.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class BenchOptions:
    """Everything that the command is given."""

    bundle: str = option("", "folder of the bundle", flags=("bundle",))
    variant: str | None = option(None, "default: the bundle's own", metavar="NAME")
    threads: int | None = option(None, "default: one for each fast core", int, metavar="N")
    repeat: int = option(5, "default: 5", metavar="N")
    length: int = option(64, "tokens of made-up answers: 64", metavar="N")
    traces: Path | None = option(None, "also fill the answers recorded in a file", Path, metavar="FILE")
    limit: int | None = option(None, "only the first N traces", int, metavar="N")
    vs: list[str] | None = option(
        None,
        f"also time another program: {', '.join(KINDS)}; may be given again",
        str,
        action="append",
        metavar="BASELINE",
    )
    no_prepack: bool = option(False, "do not use prepacked weights")
    format: str = option("md", "default: md", choices=("md", "csv", "json"))
    plot: Path | None = option(None, "plot fill time against coverage (PNG, SVG)", Path, metavar="FILE")


def parser() -> CommandParser:
    result = CommandParser(
        prog="python -m edge_runtime.bench",
        description="Time a bundle: prompts, single tokens, chunks of known tokens, whole answers.",
        epilog=_EPILOG,
    )
    result.declare(BenchOptions)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    args = parser().parse(BenchOptions, argv)
    return run_command("bench", lambda: _run(args))


def _run(args: BenchOptions) -> None:
    report = measure(args)
    print({"md": report.as_md, "csv": report.as_csv, "json": report.as_json}[args.format]())
    if args.plot:
        plot(report, args.plot)


def measure(args: BenchOptions) -> BenchReport:
    """Loads the bundle and takes every measurement, with progress on a terminal."""
    for name, value in (("--repeat", args.repeat), ("--length", args.length), ("--threads", args.threads)):
        if value is not None and value < 1:
            raise UsageError(f"{name}: expected at least 1, found {value}")

    def opened() -> EdgeRuntime:
        return EdgeRuntime.open(args.bundle, args.variant, threads=args.threads, prepack=not args.no_prepack)

    before = time.perf_counter()
    edge = opened()
    engine = edge.engine
    loaded = time.perf_counter()
    prompt = min(100, engine.context // 4)
    if prompt + args.length >= engine.context:
        raise UsageError(
            f"--length: expected less than {engine.context - prompt} for this context, found {args.length}"
        )
    engine.append([0] * prompt, [prompt - 1])
    report = BenchReport(Path(args.bundle).name, edge.bundle.variant_name, edge.threads)
    report.seconds = {"load": loaded - before, f"first pass ({prompt} tokens)": time.perf_counter() - loaded}
    report.memory = resident_memory()
    # Read before anything is timed: a wrong file is refused at once.
    recorded = {name: read_traces(args.traces, edge, name, args.limit) for name in FRACTIONS if args.traces}
    bench = Bench(OURS, engine, edge.bundle.contract)
    start = bench.start(prompt, lambda: opened().engine)
    warm, prefill = _time([start, bench.prefill(prompt)], args.repeat, report)
    report.ratios["warm start to first token over its prefill"] = warm.seconds / prefill.seconds
    _side_by_side(bench, args, edge, report)
    for test in answers(bench, prompt, args.length):
        _time([test], args.repeat, report)
    if args.traces:
        _traces(recorded, args.repeat, bench, report)
    _progress("")
    return report


def _time(tests: Sequence[Trial], repeat: int, report: BenchReport) -> list[Figure]:
    _progress(tests[0].name + "".join(f", {test.engine}" for test in tests))
    figures = timed(tests, repeat)
    report.figures += figures
    return figures


def _side_by_side(bench: Bench, args: BenchOptions, edge: EdgeRuntime, report: BenchReport) -> None:
    """Times single passes on this engine and on each baseline in turn, and adds the ratios."""
    rows = [list(passes(bench, DEPTHS))]
    for spec in args.vs or ():
        kind, _, path = spec.partition(":")
        name = f"{kind} {Path(path).name}" if path else kind
        _progress(f"loading {name}")
        baseline = open_baseline(spec, edge.bundle, context=bench.engine.context, threads=edge.threads)
        rows.append(list(passes(Bench(name, baseline, bench.contract), DEPTHS)))
        if kind == "genai":
            for label, threads in ((f"{name}'s loop", edge.threads), (f"{name}'s loop, its threads", None)):
                rows.append(list(_loop(label, path, threads, edge, bench)))
    for test in rows[0]:
        same = [other for row in rows for other in row if other.name == test.name]
        ours, *theirs = _time(same, args.repeat, report)
        report.ratios |= {f"{f.test} over {f.engine}": ours.seconds / f.seconds for f in theirs}


def _loop(label: str, folder: str, threads: int | None, edge: EdgeRuntime, bench: Bench) -> Iterator[Trial]:
    """Tests of decoding by onnxruntime-genai's own loop, on a folder of its builder or on the bundle."""
    graph = None if folder else f"{edge.bundle.variant_name}/{GRAPH}"
    model = load_genai_model(Path(folder or edge.bundle.path), graph=graph, threads=threads)
    for depth in DEPTHS:
        if depth + DECODED + 2 < bench.engine.context:
            loop = genai_loop(model, bench.ids[: max(depth, 1)], DECODED)
            yield Trial(label, f"decode at {depth}", DECODED, lambda: DECODED, *loop)


def _traces(
    recorded: dict[str, tuple[list[FillCase], int]],
    repeat: int,
    bench: Bench,
    report: BenchReport,
) -> None:
    """Times recorded answers with their own anchors, against one pass per position."""
    for fraction, (cases, left) in recorded.items():
        name = f"traces at {fraction}"
        tests = [
            bench.stepwise(f"{name}, one pass a position", cases),
            bench.fill(name, cases, FillOptions(score_anchors=False)),
            bench.fill(f"{name}, scored", cases, FillOptions()),
        ]
        slow, plain, scored = _time(tests, repeat, report)
        report.ratios[f"{name} over one pass a position"] = plain.seconds / slow.seconds
        report.ratios[f"the same, scored ({left} answers too long for the context)"] = (
            scored.seconds / slow.seconds
        )


def read_traces(
    path: Path, edge: EdgeRuntime, fraction: str, limit: int | None
) -> tuple[list[FillCase], int]:
    """Reads answers with their anchors at a fraction; returns them, and the number that exceed the context.

    Raises UsageError for a file of another form or vocabulary.
    """
    cases: list[FillCase] = []
    left = 0
    try:
        records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for record in records[:limit]:
            ids = edge.prompt_ids(record["prompt"])
            length = int(record["gen_len"])
            found = record["anchors"][fraction]
            places = [(int(p), int(i)) for p, i in found if int(p) < length]
            if len(ids) + length >= edge.engine.context:
                left += 1
                continue
            anchors = AnchorSet.of(dict(places), max(length, 1), edge.bundle.contract, length)
            cases.append(FillCase(ids, anchors))
    except PayloadError as error:
        raise UsageError(
            f"{path}: these traces are for another vocabulary than the bundle's: {error}"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: expected a line of JSON for each trace (see --help): {error!r}") from error
    if not cases:
        raise UsageError(f"{path}: expected at least one trace that fits the context, found none")
    return cases, left


def plot(report: BenchReport, path: Path) -> None:
    """Plots fill time against coverage, with the time of one pass per position."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    times = {f.test: f.seconds * 1e3 for f in report.figures if f.engine == OURS}
    figure, axes = pyplot.subplots(figsize=(6, 4))
    shares = [100 * coverage for coverage in COVERAGES]
    for suffix, label in (("", "chunks"), (", scored", "chunks, anchors scored")):
        axes.plot(shares, [times[f"fill at {c:.0%}{suffix}"] for c in COVERAGES], marker="o", label=label)
    axes.axhline(times["one pass a position"], color="grey", linestyle="--", label="one pass a position")
    axes.set(xlabel="anchored tokens, %", ylabel="milliseconds an answer", ylim=(0, None))
    axes.set_title(f"{report.bundle} {report.variant}, {report.threads} threads")
    axes.legend()
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: the plot cannot be written: {error}") from error
    finally:
        pyplot.close(figure)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
