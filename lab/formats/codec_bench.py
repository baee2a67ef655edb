"""`python -m lab.formats.codec_bench`: bytes per codec on published diffusion runs.

Responsible for encoding traces with every codec and for the tables: every figure counts all bytes of a
payload, and every payload is decoded and compared before it is counted. Payloads carry positions, ids, canvas
and the answer's length, no optional fields. Not responsible for traces (see `published_runs`) or codecs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import zstandard

from common.cli import run_command
from common.errors import InputError
from common.files import write_whole
from lab.published.published_runs import (
    CANVAS,
    DEFAULT_TOKENIZER,
    Trace,
    TraceTokenizer,
    full_answer,
    read_traces,
)
from payload.anchors import AnchorSet
from payload.header import Codec
from payload.shared import Base, Shared
from payload.wire import decode, encode

EPILOG = """examples:
  python -m lab.formats.codec_bench ../shared/traces/dream7b_dev.jsonl
  python -m lab.formats.codec_bench traces.jsonl --tokenizer tokenizer.json --json
  python -m lab.formats.codec_bench traces.jsonl --plot bytes.png --speed
"""

CODECS: dict[str, tuple[Codec, bool]] = {
    "template-gzip": (Codec.TEMPLATE_GZIP, False),
    "template-zstd": (Codec.TEMPLATE_ZSTD, False),
    "compact": (Codec.COMPACT, True),
    "compact-no-prompt": (Codec.COMPACT, False),
}
"""By name: the codec, and whether both sides know the prompt."""

FULL = "1.0"
"""The whole answer as anchors; where the last fraction is not complete, the tokens of the output's text."""

STREAM = ("0.1", "0.15", "0.25")
"""Fractions of a stream of refinements: one payload, then two that add to it."""

LONG = 20
"""Answers with more tokens are compared with zstd and a dictionary."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", type=Path, help="JSONL of runs: prompt, dream_output, gen_len, anchors")
    parser.add_argument(
        "--tokenizer", type=Path, help=f"tokenizer.json[.gz] (default: {DEFAULT_TOKENIZER} beside the traces)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw bytes by fraction (needs matplotlib)"
    )
    parser.add_argument("--speed", action="store_true", help="measure time as well")
    parser.add_argument("--no-length", action="store_true", help="leave out the length of unfinished answers")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.formats.codec_bench",
        description="Bytes per codec on published runs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(argv)
    return run_command("codec_bench", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    traces = read_traces(args.traces)
    tokenizer = TraceTokenizer(args.tokenizer or args.traces.parent / DEFAULT_TOKENIZER)
    prompts = {trace.name: tokenizer.encode(trace.prompt) for trace in traces}
    report = measure(traces, tokenizer, prompts, with_length=not args.no_length)
    if args.speed:
        report["speed"] = speed(traces, tokenizer, prompts)
    if args.plot:
        plot(report, args.plot)
    if args.json:
        print(json.dumps(report))
    else:
        print_tables(report)
    return 0


def anchors_of(trace: Trace, fraction: str, tokenizer: TraceTokenizer, with_length: bool = True) -> AnchorSet:
    """A trace's anchors at a fraction of the steps, or all of its answer."""
    if fraction == FULL:
        ids = full_answer(trace, tokenizer)
        pairs = tuple(enumerate(ids))
        length: int | None = len(ids)
    else:
        pairs = trace.anchors[fraction]
        length = trace.length if with_length or len(pairs) == trace.length else None
    canvas = max(CANVAS, trace.length, len(pairs))
    return AnchorSet.of(dict(pairs), canvas, tokenizer.contract, length)


def measure(
    traces: Sequence[Trace],
    tokenizer: TraceTokenizer,
    prompts: dict[str, list[int]],
    *,
    with_length: bool = True,
) -> dict[str, Any]:
    """The report: bytes by fraction and codec, of the full text and of a stream, and comparisons."""
    fractions = sorted({f for trace in traces for f in trace.anchors} | {FULL}, key=float)
    sizes: dict[str, dict[str, list[int]]] = {f: {name: [] for name in CODECS} for f in fractions}
    trips: dict[str, dict[str, int]] = {f: dict.fromkeys(CODECS, 0) for f in fractions}
    full: dict[str, list[int]] = {}
    streams: dict[str, list[int]] = {"stream": [], "last_alone": []}
    beaten = {"template": 0, "zstd_dictionary": 0, "long": 0}
    for trace in _progress(traces):
        prompt_ids = prompts[trace.name]
        for fraction in fractions:
            if fraction != FULL and fraction not in trace.anchors:
                continue
            anchors = anchors_of(trace, fraction, tokenizer, with_length)
            for name, (codec, primed) in CODECS.items():
                shared = Shared(tokenizer.contract, prompt_ids if primed else None, tokenizer)
                data = encode(anchors, shared, codec)
                sizes[fraction][name].append(len(data))
                trips[fraction][name] += decode(data, shared) == anchors
        if "0.1" in trace.anchors:
            beaten["template"] += sizes["0.1"]["compact"][-1] < sizes["0.1"]["template-gzip"][-1]
        text = _answer_text(trace, tokenizer)
        for name, compress in _full_text_codecs(trace.prompt).items():
            full.setdefault(name, []).append(len(compress(text)))
        if len(anchors_of(trace, FULL, tokenizer).ids) > LONG:
            beaten["long"] += 1
            beaten["zstd_dictionary"] += sizes[FULL]["compact"][-1] < full["zstd-dictionary"][-1]
        if all(fraction in trace.anchors for fraction in STREAM):
            total = sum(_stream(trace, tokenizer, prompt_ids, with_length))
            streams["stream"].append(total)
            streams["last_alone"].append(sizes[STREAM[-1]]["compact"][-1])
    return {
        "traces": len(traces),
        "fractions": {
            fraction: {
                name: summary(sizes[fraction][name]) | {"roundtrip": trips[fraction][name]} for name in CODECS
            }
            for fraction in fractions
        },
        "full_text": {name: summary(values) for name, values in full.items()},
        "stream": {name: summary(values) for name, values in streams.items() if values},
        "compact_below_template_at_0.1": beaten["template"],
        "long_answers": beaten["long"],
        "compact_below_zstd_dictionary": beaten["zstd_dictionary"],
    }


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 95th percentile (the smallest value that 95% do not exceed)."""
    if not values:
        return {"mean": 0.0, "median": 0.0, "p95": 0.0}
    ordered = sorted(values)
    return {
        "mean": round(statistics.fmean(values), 3),
        "median": float(statistics.median(values)),
        "p95": float(ordered[-(-95 * len(ordered) // 100) - 1]),
    }


def _stream(
    trace: Trace, tokenizer: TraceTokenizer, prompt_ids: list[int], with_length: bool
) -> Iterator[int]:
    """Bytes of a stream's payloads; each is decoded on top of the one before."""
    base: Base | None = None
    for fraction in STREAM:
        anchors = anchors_of(trace, fraction, tokenizer, with_length)
        shared = Shared(tokenizer.contract, prompt_ids, base=base)
        data = encode(anchors, shared)
        if decode(data, shared) != anchors:
            raise AssertionError(f"{trace.name}: the stream does not come back at {fraction}")
        base = Base(data, anchors)
        yield len(data)


def _answer_text(trace: Trace, tokenizer: TraceTokenizer) -> bytes:
    """Text of the ids that fraction FULL codes."""
    return b"".join(tokenizer.token_bytes(token) for token in full_answer(trace, tokenizer))


def _full_text_codecs(prompt: str) -> dict[str, Callable[[bytes], bytes]]:
    """General-purpose compressors of the answer's text; brotli where it is installed."""
    dictionary = zstandard.ZstdCompressionDict(prompt.encode(), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    primed = zstandard.ZstdCompressor(
        level=19,
        dict_data=dictionary,
        write_checksum=False,
        write_content_size=False,
        write_dict_id=False,
    )
    codecs: dict[str, Callable[[bytes], bytes]] = {
        "raw": bytes,
        "gzip": lambda text: gzip.compress(text, 9, mtime=0),
        "zstd": zstandard.ZstdCompressor(level=19, write_checksum=False).compress,
        "zstd-dictionary": primed.compress,
    }
    try:
        import brotli
    except ImportError:
        return codecs
    codecs["brotli"] = lambda text: bytes(brotli.compress(text, quality=11))
    return codecs


def speed(
    traces: Sequence[Trace], tokenizer: TraceTokenizer, prompts: dict[str, list[int]]
) -> dict[str, float]:
    """Template payloads decoded per second (at 10%), ms for compact with 100 anchors; best of 5."""
    unprimed = Shared(tokenizer.contract, tokens=tokenizer)
    fraction = min(traces[0].anchors, key=lambda f: abs(float(f) - 0.1))
    templates = [
        encode(anchors_of(trace, fraction, tokenizer), unprimed, Codec.TEMPLATE_GZIP) for trace in traces
    ]
    decoded = _best(lambda: [decode(data, unprimed) for data in templates])
    longest = max(traces, key=lambda trace: len(full_answer(trace, tokenizer)))
    ids = (full_answer(longest, tokenizer) * 100)[:100]
    anchors = AnchorSet(tuple(range(100)), tuple(ids), CANVAS, tokenizer.contract, 100)
    primed = Shared(tokenizer.contract, prompts[longest.name])
    data = encode(anchors, primed)
    return {
        "template_payloads_per_second": round(len(templates) / decoded, 1),
        "compact_encode_100_ms": round(1000 * _best(lambda: encode(anchors, primed)), 2),
        "compact_decode_100_ms": round(1000 * _best(lambda: decode(data, primed)), 2),
    }


def _best(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest of five runs, so that other load does not count."""
    times = []
    for _ in range(5):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def _progress(traces: Sequence[Trace]) -> Iterator[Trace]:
    """The traces, with a bar on a terminal's stderr."""
    shown = sys.stderr.isatty()
    for number, trace in enumerate(traces, 1):
        if shown:
            done = 30 * number // len(traces)
            print(f"\r[{'#' * done}{'.' * (30 - done)}] {number}/{len(traces)}", end="", file=sys.stderr)
        yield trace
    if shown:
        print("\r" + " " * 50 + "\r", end="", file=sys.stderr)


def print_tables(report: dict[str, Any]) -> None:
    count = report["traces"]
    print(f"{count} traces; bytes per payload, all framing included (mean / median / p95)\n")
    print(f"{'fraction':>8}  " + "  ".join(f"{name:>22}" for name in CODECS) + "   round trips")
    for fraction, row in report["fractions"].items():
        cells = [f"{row[n]['mean']:8.2f} /{row[n]['median']:5.0f} /{row[n]['p95']:5.0f}" for n in CODECS]
        trips = sum(row[n]["roundtrip"] for n in CODECS)
        print(
            f"{fraction:>8}  "
            + "  ".join(f"{cell:>22}" for cell in cells)
            + f"   {trips}/{count * len(CODECS)}"
        )
    print("\nthe full answer's text, without framing")
    for name, row in report["full_text"].items():
        print(f"{name:>16}  {row['mean']:8.2f} /{row['median']:5.0f} /{row['p95']:5.0f}")
    if report["stream"]:
        stream, last = report["stream"]["stream"]["mean"], report["stream"]["last_alone"]["mean"]
        print(f"\na stream at {', '.join(STREAM)}: {stream:.2f} bytes in all; the last alone {last:.2f}")
    print(f"compact below template-gzip at 0.1: {report['compact_below_template_at_0.1']} of {count}")
    print(
        f"whole answers over {LONG} tokens below zstd-19 with the prompt as dictionary: "
        f"{report['compact_below_zstd_dictionary']} of {report['long_answers']}"
    )
    for name, value in report.get("speed", {}).items():
        print(f"{name.replace('_', ' ')}: {value}")


def plot(report: dict[str, Any], path: Path) -> None:
    """Mean bytes by fraction, one line per codec, and the full text's compressors as levels."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("--plot: expected matplotlib, found none; pip install matplotlib") from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    fractions = list(report["fractions"])
    for name in CODECS:
        means = [report["fractions"][fraction][name]["mean"] for fraction in fractions]
        axes.plot([float(fraction) for fraction in fractions], means, marker="o", markersize=3, label=name)
    for name, row in report["full_text"].items():
        if name != "raw":
            axes.axhline(row["mean"], linewidth=0.8, linestyle=":", color="grey")
            axes.annotate(f"{name} of the full text", (0.62, row["mean"]), fontsize=7, va="bottom")
    axes.set(xlabel="fraction of the diffusion steps", ylabel="mean bytes per payload", ylim=(0, None))
    axes.set_title(f"{report['traces']} runs")
    axes.legend(fontsize=8)
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix.lstrip(".") or "png", dpi=150)
    write_whole(path, picture.getvalue())


if __name__ == "__main__":
    sys.exit(main())
