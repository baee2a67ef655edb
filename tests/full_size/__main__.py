"""python -m tests.full_size FOLDER: the whole way at full size, with random weights, where there is no GPU.

Writes a checkpoint of Dream-7B's exact shape in four shards (15 GB) and one of Qwen2.5-0.5B's, then runs the
README's own commands: convert to int4, prompt to payload, payload to text. Prints the seconds and the peak
memory of each. Needs 35 GB of disk and 20 GB of memory; answers of random weights are noise. Steps that are
done are kept in FOLDER and not repeated; --remove deletes the 15 GB at the end.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common.cli import run_command
from common.errors import UserError
from common.files import read_text
from tests.full_size.random_dream import write_random_dream

PROMPT = "Why is the sky blue?"


class CommandError(UserError):
    """One of the commands has failed."""


def measured(title: str, *command: str) -> None:
    """Runs a Python command and prints its seconds and its peak resident memory, mapped files included."""
    print(f"$ python {shlex.join(command)}", flush=True)
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise CommandError(f"{title}: expected exit code 0, found {process.returncode}")
    seconds, peak = time.perf_counter() - started, usage.ru_maxrss * 1024 / 1e9
    print(f"| {title} | {seconds:.0f} s | {peak:.1f} GB at its peak |", flush=True)


def run(args: argparse.Namespace) -> int:
    names = ("dream-7b", "qwen2.5-0.5b", "bundle", "payload.bin")
    dream, qwen, bundle, out = (args.folder / name for name in names)
    tokenizer = ["--tokenizer", str(args.tokenizer)] if args.tokenizer else []
    if not (dream / "model.safetensors.index.json").is_file():
        write_random_dream(dream, tokenizer=read_text(args.tokenizer) if args.tokenizer else None)
    if not (qwen / "model.safetensors").is_file():
        random = ["-m", "lab.benches.random_checkpoint", str(qwen), "--size", "0.5B", *tokenizer]
        measured("random Qwen2.5-0.5B", *random)
    if not (bundle / "bundle.json").is_file():
        loose = ["--threshold", "int4.top1=0", "--threshold", "int4.mean_kl=1"]  # the weights are random
        measured("convert", "-m", "convert", str(qwen), "-o", str(bundle), "--variants", "int4", *loose)
    model = ["--model", str(dream), "--edge", str(bundle)]
    plan = ["--fraction", "0.1", "--canvas", str(args.canvas), "--total-steps", str(args.canvas)]
    measured(
        "prompt to payload",
        *("-m", "cloud_anchor.anchor", *model, *plan, "--prompt", PROMPT, "-o", str(out)),
    )
    measured("inspect", "-m", "payload", "inspect", str(out))
    measured("payload to text", "-m", "edge_runtime.fill", str(out), "--edge", str(bundle))
    if args.remove:
        shutil.rmtree(dream)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.full_size",
        description=__doc__,
        epilog="example:\n  python -m tests.full_size runs/dream --tokenizer tokenizer.json --remove",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the checkpoints, the bundle and the payload go")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="Qwen2.5's published tokenizer.json, or .json.gz"
    )
    parser.add_argument(
        "--canvas", type=int, default=64, help="positions, and steps of a full run (default: 64)"
    )
    parser.add_argument("--remove", action="store_true", help="delete the large checkpoint at the end")
    args = parser.parse_args(argv)
    return run_command("full_size", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
