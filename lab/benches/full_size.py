"""python -m lab.benches.full_size FOLDER: the whole conversion at the exact size of Qwen2.5-0.5B.

Makes a checkpoint with random weights (1 GB), converts it to every variant, and prints the cost of each stage
and each variant, as the tables in convert/README.md. Needs 10 GB of disk and memory. Random weights say
nothing about accuracy, so only fp32 and fp16 are held to their thresholds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from common.cli import CommandParser, run_command
from common.progress import Silent
from convert.check.verify import Thresholds
from convert.conversion import convert
from edge_runtime.bundle.bundle import MANIFEST, Bundle, Manifest, read_manifest
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.system import peak_rss_bytes, resident_memory
from lab.benches.random_checkpoint import read_tokenizer, write_random_checkpoint

VARIANTS = ("fp32", "fp16", "int8", "int4")
CHUNKS = (1, 8, 32)


class Clock(Silent):
    """Prints the seconds of each stage and the peak memory of the process so far."""

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        started = time.perf_counter()
        yield lambda steps: None
        seconds, peak = time.perf_counter() - started, peak_rss_bytes() / 1e9
        print(f"| {title} | {seconds:.0f} | {peak:.1f} |", flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)


def measure(bundle: Path, variant: str, threads: int) -> dict[str, float]:
    """Seconds to load a variant in this process, resident megabytes, and median milliseconds by chunk."""
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
    memory = resident_memory()
    return result | {"resident": sum(memory.values()) / 1e6, "anonymous": memory["anonymous"] / 1e6}


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


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.full_size",
        description=__doc__,
        epilog="example:\n  python -m lab.benches.full_size runs/full-size --threads 2",
    )
    parser.add_argument("folder", type=Path, help="where the checkpoint and the bundle go; both are kept")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="Qwen2.5's published tokenizer.json, or .json.gz"
    )
    args = parser.parse_args(argv)

    def run() -> None:
        source, bundle = args.folder / "checkpoint", args.folder / "bundle"
        variants = tuple(args.variants.split(","))
        if not (source / "model.safetensors").exists():
            text = read_tokenizer(args.tokenizer) if args.tokenizer else None
            write_random_checkpoint(source, "0.5B", tokenizer=text)
        manifest = (
            read_manifest(bundle)
            if (bundle / MANIFEST).exists()
            else converted(source, bundle, variants, args.threads)
        )
        heads = " | ".join(f"ms per chunk of {chunk}" for chunk in CHUNKS)
        print(f"| variant | MB | mean KL | load s | resident MB (anonymous) | {heads} |")
        print("|---" * (5 + len(CHUNKS)) + "|")
        for name in variants:
            variant = manifest.variants[name]
            size = sum(record.size for record in variant.files.values()) / 1e6
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # memory is that of a fresh process
                cost = pool.submit(measure, bundle, name, args.threads).result()
            chunks = " | ".join(f"{cost[f'ms{chunk}']:.1f}" for chunk in CHUNKS)
            print(
                f"| {name} | {size:.1f} | {variant.verification['mean_kl']:.1e} | {cost['load']:.1f} "
                f"| {cost['resident']:.0f} ({cost['anonymous']:.0f}) | {chunks} |",
                flush=True,
            )

    return run_command("full_size", run)


if __name__ == "__main__":
    sys.exit(main())
