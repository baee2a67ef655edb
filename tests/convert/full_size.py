"""python -m tests.convert.full_size FOLDER: the whole conversion at the exact size of Qwen2.5-0.5B.

A benchmark, not a test: makes a checkpoint with random weights (1 GB), converts it to every variant, and
prints what each stage and each variant costs as the table that convert/README.md shows. Needs 10 GB of disk
and memory. Random weights say nothing about accuracy, so only fp32 and fp16 are held to their thresholds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from convert import Thresholds, convert
from convert.progress import Silent
from edge_runtime.bundle.bundle import MANIFEST, Bundle, Manifest, read_manifest
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.tools.baselines import genai_loop, genai_model, genai_options
from tests.checkpoints import write_random_qwen25

REPOSITORY = Path(__file__).parents[2]
PUBLISHED_TOKENIZER = REPOSITORY.parent / "shared" / "tokenizer" / "qwen2.5_tokenizer.json.gz"
VARIANTS = ("fp32", "fp16", "int8", "int8-dynamic", "int4")
CHUNKS = (1, 8, 32)


class Clock(Silent):
    """Notes how long each stage took and how much memory the process has needed so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float]] = []

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        started = time.perf_counter()
        yield lambda steps: None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        self.rows.append((title, time.perf_counter() - started, peak))
        print(f"| {title} | {self.rows[-1][1]:.0f} | {peak:.1f} |", flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)


def measure(bundle: Path, variant: str, threads: int) -> dict[str, float]:
    """Load a variant in this process: seconds, resident megabytes, and milliseconds of chunks (the
    median).
    """
    started = time.perf_counter()
    engine = OrtEngine.open(Bundle.open(bundle, variant, verify=False), threads=threads)
    engine.append(list(range(16)), [15])
    result = {"load": time.perf_counter() - started}
    for chunk in CHUNKS:
        times = []
        for _ in range(15):
            engine.rewind(16)
            started = time.perf_counter()
            engine.append(list(range(chunk)), [chunk - 1])
            times.append(1e3 * (time.perf_counter() - started))
        result[f"ms{chunk}"] = statistics.median(times)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    result["resident"] = int(fields["VmRSS"].split()[0]) / 1e3
    result["anonymous"] = int(fields["RssAnon"].split()[0]) / 1e3
    return result


def measure_genai(folder: Path, graph: str | None, threads: int) -> float:
    """Milliseconds a token (the median) of onnxruntime-genai's own loop on a folder of its form."""
    count = 20
    prepare, run = genai_loop(genai_model(folder, genai_options(threads, graph)), range(16), count)
    times = []
    for _ in range(6):
        prepare()
        started = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - started) / count)
    return statistics.median(times[1:])


def in_own_process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.convert.full_size", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def converted(source: Path, bundle: Path, variants: tuple[str, ...], threads: int) -> Manifest:
    """The whole conversion, with the cost of each stage as a table."""
    print("| stage | seconds | peak GB |\n|---|---|---|", flush=True)
    started = time.perf_counter()
    bounds = {name: Thresholds() for name in variants if name.startswith("int")}
    manifest = convert(
        source, bundle, variants=variants, thresholds=bounds, threads=threads, progress=Clock()
    )
    print(f"| all | {time.perf_counter() - started:.0f} | |\n")
    return manifest


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.convert.full_size",
        description=__doc__,
        epilog="example:\n  python -m tests.convert.full_size runs/full-size --threads 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the checkpoint and the bundle go; both are kept")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument(
        "--genai", type=Path, metavar="FOLDER", help="an int4 model made by genai's own builder"
    )
    parser.add_argument("--measure", metavar="VARIANT", help=argparse.SUPPRESS)
    parser.add_argument("--measure-genai", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    source, bundle = args.folder / "checkpoint", args.folder / "bundle"
    if args.measure_genai:
        print(json.dumps({"ms1": measure_genai(args.folder, args.measure, args.threads)}))
        return
    if args.measure:
        print(json.dumps(measure(bundle, args.measure, args.threads)))
        return
    variants = tuple(args.variants.split(","))
    if not (source / "model.safetensors").exists():
        text = None
        if PUBLISHED_TOKENIZER.exists():
            text = gzip.decompress(PUBLISHED_TOKENIZER.read_bytes()).decode("utf-8")
        write_random_qwen25(source, "0.5B", tokenizer=text)
    manifest = (
        read_manifest(bundle)
        if (bundle / MANIFEST).exists()
        else converted(source, bundle, variants, args.threads)
    )
    heads = " | ".join(f"ms a chunk of {chunk}" for chunk in CHUNKS)
    print(f"| variant | MB | mean KL | load s | resident MB (anonymous) | {heads} |")
    print("|---" * (5 + len(CHUNKS)) + "|")
    for name in variants:
        variant = manifest.variants[name]
        size = sum(record.size for record in variant.files.values()) / 1e6
        cost = in_own_process(str(args.folder), "--measure", name, "--threads", str(args.threads))
        chunks = " | ".join(f"{cost[f'ms{chunk}']:.1f}" for chunk in CHUNKS)
        print(
            f"| {name} | {size:.1f} | {variant.verification['mean_kl']:.1e} | {cost['load']:.1f} "
            f"| {cost['resident']:.0f} ({cost['anonymous']:.0f}) | {chunks} |",
            flush=True,
        )
    threads = ["--threads", str(args.threads)]
    if "int4" in variants:
        graph = ["--measure-genai", "--measure", "int4/genai.onnx"]
        ours = in_own_process(str(bundle), *graph, *threads)
        print(f"\nint4 in onnxruntime-genai's loop: {ours['ms1']:.1f} ms a token")
    if args.genai:
        theirs = in_own_process(str(args.genai), "--measure-genai", *threads)
        print(f"onnxruntime-genai's own builder and loop: {theirs['ms1']:.1f} ms a token")


if __name__ == "__main__":
    main()
