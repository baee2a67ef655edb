"""python -m tests.arm: the device's side on emulated 64-bit ARM processors.

Makes a small Debian userland for ARM (once; it is kept in build/arm), runs the tests of edge_runtime and of
the wire format in it, and fills the same payloads there and on the host. tests/arm/README.md says what is
compared, and why not every variant can give the same tokens. Emulated times are not those of a board.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edge_runtime.bundle.bundle import read_manifest
from tests.arm.userland import CPUS, REPOSITORY, Userland, UserlandError
from tests.shipped import TINY_BUNDLE

PAYLOAD = ("test_wire.py", "test_vectors.py", "codecs/test_range_coder.py")
LINKS = ("tests/links", "--ignore=tests/links/frames", "--ignore=tests/links/gateway")
SUITE = ("tests/edge_runtime", *LINKS, *(f"tests/payload/{name}" for name in PAYLOAD))
"""The tests for a device, without those that measure time, read hundreds of traces or need a service."""
ARITHMETIC = (
    *(f"tests/edge_runtime/{name}" for name in ("decisions", "decode", "engine", "bundle/test_shipped.py")),
    *(f"tests/edge_runtime/test_{name}.py" for name in ("finished", "predictive", "session", "sharing")),
    *(f"tests/payload/{name}" for name in PAYLOAD),
)
"""Of these, the ones whose results depend on the processor's arithmetic."""
EXACT = ("fp32", "fp16")
"""Variants with float32 activations: their tokens must be the same everywhere."""
DOT_PRODUCT = "asimddp"
"""The feature with which ONNX Runtime rounds activations to 8 bits, as it does on x86."""
FLOAT_BOUND = 1e-3
"""Largest difference of a logit allowed between two processors' float32 sums."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.arm",
        description=__doc__,
        epilog="examples:\n  python -m tests.arm\n"
        "  python -m tests.arm --bundle runs/full-size/bundle --variants int8 --no-tests",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cpus", default=",".join(CPUS), help=f"default: {','.join(CPUS)}")
    parser.add_argument("--bundle", type=Path, help="also fill one payload with a bundle of full size")
    parser.add_argument("--variants", help="of that bundle; default: all")
    parser.add_argument("--no-tests", action="store_true", help="only fill payloads")
    args = parser.parse_args(argv)
    cpus = args.cpus.split(",")
    if unknown := [cpu for cpu in cpus if cpu not in CPUS]:
        parser.error(f"--cpus: expected some of {', '.join(CPUS)}, found {', '.join(unknown)}")
    started = time.perf_counter()
    userland = Userland(REPOSITORY / "build" / "arm")
    try:
        userland.prepare()
        random = random_bundle(userland.folder / "tiny-random")
        suites = {cpu: ARITHMETIC if number else SUITE for number, cpu in enumerate(cpus)}
        failed = [
            cpu for cpu in cpus if not args.no_tests and not run_tests(userland, cpu, random, suites[cpu])
        ]
        print(
            "\n| bundle | variant | processor | same answers | same choices | logits differ by | allowed | |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for bundle in (TINY_BUNDLE, random):
            failed += compare(userland, cpus, bundle)
        if args.bundle:
            chosen = ["--variants", args.variants] if args.variants else []
            failed += compare(userland, cpus, args.bundle, "--length", "12", "--cases", "1", *chosen)
    except UserlandError as error:
        print(f"arm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("arm: interrupted; what is made already is kept", file=sys.stderr)
        return 130
    print(
        f"\n{time.perf_counter() - started:.0f} s; "
        + (f"failed: {', '.join(failed)}" if failed else "passed")
    )
    return 1 if failed else 0


def random_bundle(folder: Path) -> Path:
    """A bundle of random weights in fp32, int8 and int4, converted here: ARM has no torch."""
    whole = (folder / "bundle.json").is_file()
    if not whole or not all(each.portable for each in read_manifest(folder).variants.values()):
        from convert import Thresholds, convert
        from tests.checkpoints import write_tiny_qwen

        checkpoint = write_tiny_qwen(folder.with_name("checkpoint"))
        shutil.rmtree(folder, ignore_errors=True)  # one of an earlier format
        bounds = {name: Thresholds() for name in ("fp32", "int8", "int4")}
        convert(checkpoint, folder, variants=list(bounds), thresholds=bounds, threads=1)
        path = folder / "bundle.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "default_variant": "fp32"}))
    return folder


def run_tests(userland: Userland, cpu: str, bundle: Path, suite: Sequence[str]) -> bool:
    """Run the tests of the packages that a device has, on one processor; returns True where they pass."""
    print(f"\ntests as {cpu}", flush=True)
    options = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.arm.emulated", "-rs", "--durations=5")
    command = userland.command(cpu, [*options, *suite])
    environment = userland.environment(EDGE_TEST_BUNDLE=str(bundle), OMP_NUM_THREADS="1")
    return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode == 0


def compare(userland: Userland, cpus: Sequence[str], bundle: Path, *options: str) -> list[str]:
    """Fill the payloads here and on each processor and print one line per variant; returns the failures."""
    failed = []
    out = userland.folder / "fills"
    out.mkdir(exist_ok=True)
    for cpu in cpus:
        rounds = DOT_PRODUCT in CPUS[cpu][1].split()
        reference = bundle if rounds else float_activations(bundle, out / bundle.name)
        here, there = out / f"{bundle.name}.npz", out / f"{bundle.name}.{cpu}.npz"
        fills = ["-m", "tests.arm.fills"]
        check = [] if rounds else ["--no-verify"]
        command = [sys.executable, *fills, str(here), str(reference), *options, *check]
        subprocess.run(command, cwd=REPOSITORY, check=True)
        command = userland.command(cpu, [*fills, str(there), str(bundle), *options, "--texts", str(here)])
        subprocess.run(command, env=userland.environment(), cwd=REPOSITORY, check=True)
        expected, found = dict(np.load(here)), dict(np.load(there))
        for variant in sorted({name.split("/")[0] for name in expected}):
            names = [name for name in expected if name.startswith(f"{variant}/") and name.endswith("/ids")]
            same = sum(np.array_equal(expected[name], found[name]) for name in names)
            ours, theirs = (
                np.concatenate([arrays[name.replace("/ids", "/logits")] for name in names])
                for arrays in (expected, found)
            )
            delta = float(np.abs(ours - theirs).max())
            agree = int((ours.argmax(1) == theirs.argmax(1)).sum())
            exact = variant in EXACT or not rounds
            bound = read_manifest(bundle).variants[variant].verification["max_delta"]
            bound = FLOAT_BOUND if exact else float(bound)
            good = delta <= bound and (same == len(names) or not exact)
            print(
                f"| {bundle.name} | {variant} | {cpu} | {same} of {len(names)} | {agree} of {len(ours)} "
                f"| {delta:.1e} | {bound:.1e} | {'ok' if good else 'FAILED'} |",
                flush=True,
            )
            if not good:
                failed.append(f"{bundle.name} {variant} on {cpu}")
    return failed


def float_activations(bundle: Path, copy: Path) -> Path:
    """A copy of the bundle with float32 activations, as on a processor without dot products."""
    import onnx

    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(bundle, copy, copy_function=_link_data)
    for graph in copy.glob("*/model.onnx"):
        model = onnx.load(graph, load_external_data=False)
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 1
        onnx.save(model, graph)
    return copy


def _link_data(source: str, target: str) -> None:
    """Link weights where the file system can; copy graphs, for they will be changed."""
    if source.endswith(".data"):
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copy2(source, target)


if __name__ == "__main__":
    sys.exit(main())
