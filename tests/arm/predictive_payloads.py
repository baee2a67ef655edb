"""python -m tests.arm.predictive_payloads: predictive payloads from the host, read on other processors.

Writes payloads of held-out prompts (half of them whole answers, half the tokens that the edge model would not
write by itself), reads them here and on each emulated ARM processor, and counts those that are read exactly.
The emulated device has no torch: it is given the file and the bundle. For any other processor, version of
ONNX Runtime, number of threads or of rows in a pass, in two steps:

    python -m tests.arm.predictive_payloads --bundle BUNDLE --variants int8 --texts --count 200 --write FILE
    qemu-x86_64 -cpu Haswell python -m tests.arm.predictive_payloads --bundle BUNDLE --variants int8 \\
        --read FILE
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_runtime.bundle.bundle import read_manifest
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.runtime import EdgeRuntime
from payload import TOLERANCE
from payload.errors import FingerprintError
from tests.shipped import TINY_BUNDLE

COMPARED = 8
"""Payloads whose rows of logits are compared as well."""
NEAR = 12.0
"""Rows are compared at tokens within so many nats of the likeliest; others are never coded by rank."""


def write(file: Path, edge: EdgeRuntime, made: Iterator[dict[str, Any]], count: int) -> None:
    """Write the payloads with their prompts and tokens, and rows of logits along `COMPARED` of the texts."""
    rows = []
    for row in made:
        rows.append(row)
        print(f"\r{len(rows)} of {count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    file.write_text(json.dumps(rows))
    some = range(0, len(rows), max(1, len(rows) // COMPARED))[:COMPARED]
    known = {str(at): _rows(edge, rows[at]["prompt"], rows[at]["ids"], 1) for at in some}
    np.savez(file.with_suffix(".npz"), **known)


def finished(edge: EdgeRuntime, count: int) -> Iterator[dict[str, Any]]:
    """Whole texts: right answers to the testbed's held-out questions for its own bundle, else those of
    `lab.answers`.
    """
    from edge_runtime.finished import payload_of, text_ids
    from lab.answers.read import sources, texts_of, wrote
    from lab.pairs.testbed.library import load
    from lab.pairs.testbed.questions import held_out_questions
    from payload import Codec

    if edge.bundle.path.samefile(SHIPPED):
        texts = [(each.prompt, each.answer) for each in held_out_questions(load(), count)]
    else:
        own = [name for name in sources() if not wrote(name, edge.bundle.manifest.model)]
        texts = [(each.prompt, each.text) for name in own for each in texts_of(name)][:count]
    for prompt, text in texts:
        ids = text_ids(edge, text)
        anchors = {"positions": [*range(len(ids))], "ids": ids, "length": len(ids)}
        payload = payload_of(edge, text, prompt, Codec.PREDICTIVE).hex()
        yield {"payload": payload, "prompt": prompt, "ids": ids, "anchors": anchors}


def _rows(edge: EdgeRuntime, prompt: str, text: list[int], chunk: int) -> NDArray[np.float32]:
    """Rows [n, V + 1] along a text, `chunk` in a pass; a device that reads a payload has 1."""
    predictor = edge.predictor(edge.prompt_ids(prompt))
    passes = [
        np.stack([*predictor.read(text[: min(at + chunk, len(text)) - 1], at)])
        for at in range(0, len(text), chunk)
    ]
    return np.concatenate(passes).astype(np.float32)


def read(file: Path, edge: EdgeRuntime, chunk: int, *, only_rows: bool) -> int:
    """Read the payloads on this processor and print the figures; returns the number not read exactly."""
    made = json.loads(file.read_text())
    exact = refused = wrong = 0
    started = time.perf_counter()
    for row in [] if only_rows else made:
        try:
            found = edge.read(bytes.fromhex(row["payload"]), row["prompt"]).anchors
        except FingerprintError:
            refused += 1
            continue
        held = {"positions": [*found.positions], "ids": [*found.ids], "length": found.length}
        same = held.items() <= row["anchors"].items()
        exact, wrong = exact + same, wrong + (not same)
    seconds = time.perf_counter() - started
    off = 0.0
    for at, ours in np.load(file.with_suffix(".npz")).items():
        theirs = _rows(edge, made[int(at)]["prompt"], made[int(at)]["ids"], chunk)
        ours, theirs = ours - ours.max(1, keepdims=True), theirs - theirs.max(1, keepdims=True)
        near = ours > -NEAR
        off = max(off, float(np.abs(theirs[near] - ours[near]).max()))
    print(
        f"{edge.bundle.variant_name}: {exact} of {exact + refused + wrong} exact, {refused} refused, "
        f"{wrong} wrong; differences of log-probabilities off by {off:.1e} at most; {seconds:.0f} s",
        flush=True,
    )
    return refused + wrong


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.arm.predictive_payloads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bundle", type=Path, default=TINY_BUNDLE)
    parser.add_argument(
        "--variants", help="names, separated by commas; default: all. --write and --read take the first"
    )
    parser.add_argument("--count", type=int, default=50, help="payloads (50)")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--texts", action="store_true", help="finished texts in place of held-out prompts")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="only write these payloads, of one variant"
    )
    parser.add_argument("--read", type=Path, metavar="FILE", help="only read them, on this processor")
    parser.add_argument("--threads", type=int, default=2, help="of a reader (2)")
    parser.add_argument("--chunk", type=int, default=1, help="rows in a pass where rows are compared (1)")
    parser.add_argument("--only-rows", action="store_true", help="compare rows, and read no payload")
    args = parser.parse_args(argv)
    variants = args.variants.split(",") if args.variants else sorted(read_manifest(args.bundle).variants)

    def opened(variant: str, threads: int | None = None) -> EdgeRuntime:
        return EdgeRuntime.open(args.bundle, variant, prepack=False, threads=threads)

    def write_to(file: Path, edge: EdgeRuntime) -> None:
        from tests.android.predictive_expectations import shipped

        made = finished(edge, args.count) if args.texts else shipped(edge, args.count, args.tolerance)
        write(file, edge, made, args.count)

    if args.write:
        write_to(args.write, opened(variants[0]))
        return 0
    if args.read:
        edge = opened(variants[0], args.threads)
        return int(read(args.read, edge, args.chunk, only_rows=args.only_rows) > 0)
    from tests.arm.userland import CPUS, REPOSITORY, Userland

    userland = Userland(REPOSITORY / "build" / "arm")
    userland.prepare()
    failed = 0
    for variant in variants:
        file = userland.folder / f"predictive.{variant}.json"
        write_to(file, opened(variant))
        print("here:", end=" ", flush=True)
        failed += read(file, opened(variant, 2), 1, only_rows=False)
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
