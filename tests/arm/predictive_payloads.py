"""python -m tests.arm.predictive_payloads: predictive payloads from the host, read on emulated ARM.

Writes payloads of held-out prompts (half of them whole answers, half the tokens that the edge model would not
write by itself), reads them here and on each processor, and counts those that are read exactly. The emulated
device has no torch: it is given the file and the bundle.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_runtime.bundle.bundle import read_manifest
from edge_runtime.runtime import EdgeRuntime
from payload import TOLERANCE
from payload.errors import FingerprintError
from tests.shipped import TINY_BUNDLE

COMPARED = 8
"""Payloads whose rows of logits are compared as well."""
NEAR = 12.0
"""Rows are compared at tokens within so many nats of the likeliest; others are never coded by rank."""


def write(file: Path, bundle: Path, variant: str, count: int, tolerance: float) -> None:
    """Write the payloads with their prompts, anchors and texts, and rows of logits along some texts."""
    from tests.android.predictive_expectations import shipped

    edge = EdgeRuntime.open(bundle, variant, prepack=False)
    made = list(shipped(edge, count, tolerance))
    file.write_text(json.dumps(made))
    rows = {str(at): _rows(edge, row["prompt"], row["ids"]) for at, row in enumerate(made[:COMPARED])}
    np.savez(file.with_suffix(".npz"), **rows)


def _rows(edge: EdgeRuntime, prompt: str, text: list[int]) -> NDArray[np.float32]:
    """Rows [n, V + 1] along a text, one pass per position, as a device reads."""
    predictor = edge.predictor(edge.prompt_ids(prompt))
    rows = [next(predictor.read(text[:at], at)) for at in range(len(text))]
    return np.stack(rows).astype(np.float32)


def read(file: Path, bundle: Path, variant: str) -> int:
    """Read the payloads on this processor and print the figures; returns the number not read exactly."""
    edge = EdgeRuntime.open(bundle, variant, prepack=False, threads=2)
    made = json.loads(file.read_text())
    exact = refused = 0
    started = time.perf_counter()
    for row in made:
        try:
            found = edge.read(bytes.fromhex(row["payload"]), row["prompt"]).anchors
        except FingerprintError:
            refused += 1
            continue
        held = {"positions": [*found.positions], "ids": [*found.ids], "length": found.length}
        exact += held.items() <= row["anchors"].items()
    wrong = len(made) - exact - refused
    seconds = time.perf_counter() - started
    off = 0.0
    for at, ours in np.load(file.with_suffix(".npz")).items():
        theirs = _rows(edge, made[int(at)]["prompt"], made[int(at)]["ids"])
        shift = (theirs - theirs.max(1, keepdims=True)) - (ours - ours.max(1, keepdims=True))
        near = ours > ours.max(1, keepdims=True) - NEAR
        off = max(off, float(np.abs(shift[near]).max()))
    print(
        f"{variant}: {exact} of {len(made)} exact, {refused} refused, {wrong} wrong; differences of "
        f"log-probabilities off by {off:.1e} at most; {seconds:.0f} s",
        flush=True,
    )
    return refused + wrong


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.arm.predictive_payloads", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=TINY_BUNDLE)
    parser.add_argument("--variants", help="names, separated by commas; default: all")
    parser.add_argument("--count", type=int, default=50, help="payloads (50)")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument(
        "--read", type=Path, metavar="FILE", help="only read these payloads, on this processor"
    )
    args = parser.parse_args(argv)
    variants = args.variants.split(",") if args.variants else sorted(read_manifest(args.bundle).variants)
    if args.read:
        return int(sum(read(args.read, args.bundle, variant) for variant in variants) > 0)
    from tests.arm.userland import CPUS, REPOSITORY, Userland

    userland = Userland(REPOSITORY / "build" / "arm")
    userland.prepare()
    failed = 0
    for variant in variants:
        file = userland.folder / f"predictive.{variant}.json"
        write(file, args.bundle, variant, args.count, args.tolerance)
        print("here:", end=" ", flush=True)
        failed += read(file, args.bundle, variant)
        for cpu in CPUS:
            print(f"{cpu}:", end=" ", flush=True)
            options = ["--read", str(file), "--bundle", str(args.bundle), "--variants", variant]
            command = userland.command(cpu, ["-m", "tests.arm.predictive_payloads", *options])
            failed += subprocess.run(
                command, env=userland.environment(), cwd=REPOSITORY, check=False
            ).returncode
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
