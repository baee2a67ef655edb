"""python -m lab.benches.full_size FOLDER: the whole conversion at the exact size of Qwen2.5-0.5B.

Makes a checkpoint with random weights (1 GB), converts it to every variant, and prints the cost of each stage
and each variant, as in lab/results/converter.md. Needs 10 GB of disk and memory. Random weights say
nothing about accuracy, so only fp32 and fp16 are held to their thresholds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from common.cli import option, run_options
from common.files import read_text
from common.progress import Silent
from convert.check.verify import Thresholds
from convert.conversion import convert
from edge_runtime.bundle.bundle import MANIFEST, Bundle, Manifest, read_manifest
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.system import peak_rss_bytes, resident_memory
from lab.benches.random_checkpoint import TOKENIZER, write_random_checkpoint
from lab.tables import markdown

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


def converted(source: Path, bundle: Path, variants: Sequence[str], threads: int) -> Manifest:
    """The whole conversion, with the cost of each stage as a table."""
    print("| stage | seconds | peak GB |\n|---|---|---|", flush=True)
    started = time.perf_counter()
    bounds = {name: Thresholds() for name in variants if name.startswith("int")}
    manifest = convert(
        source, bundle, variants=variants, thresholds=bounds, threads=threads, progress=Clock()
    )
    print(f"| all | {time.perf_counter() - started:.0f} | |\n")
    return manifest


def cost(name: str, manifest: Manifest, bundle: Path, threads: int) -> dict[str, str]:
    """The row of a variant."""
    variant = manifest.variants[name]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # memory is that of a fresh process
        of = pool.submit(measure, bundle, name, threads).result()
    return {
        "variant": name,
        "MB": f"{sum(record.size for record in variant.files.values()) / 1e6:.1f}",
        "mean KL": f"{variant.verification['mean_kl']:.1e}",
        "load s": f"{of['load']:.1f}",
        "resident MB (anonymous)": f"{of['resident']:.0f} ({of['anonymous']:.0f})",
        **{f"ms per chunk of {chunk}": f"{of[f'ms{chunk}']:.1f}" for chunk in CHUNKS},
    }


@dataclass(frozen=True)
class FullSizeOptions:
    """The whole conversion at the exact size of Qwen2.5-0.5B, with random weights."""

    folder: Path = option(None, "where checkpoint and bundle go; both are kept", flags=("folder",))
    threads: int = option(2, "of the processor")
    variants: str = option(",".join(VARIANTS), "to make")
    tokenizer: Path | None = option(None, TOKENIZER)


def run(options: FullSizeOptions) -> None:
    source, bundle = options.folder / "checkpoint", options.folder / "bundle"
    variants, threads = options.variants.split(","), options.threads
    if not (source / "model.safetensors").exists():
        text = read_text(options.tokenizer) if options.tokenizer else None
        write_random_checkpoint(source, "0.5B", tokenizer=text)
    done = (bundle / MANIFEST).exists()
    manifest = read_manifest(bundle) if done else converted(source, bundle, variants, threads)
    print(markdown(pd.DataFrame([cost(name, manifest, bundle, threads) for name in variants])))


def main(argv: Sequence[str] | None = None) -> int:
    example = "example:\n  python -m lab.benches.full_size runs/full-size --threads 2"
    return run_options("lab.benches.full_size", run, FullSizeOptions, argv, example)


if __name__ == "__main__":
    sys.exit(main())
