"""python -m tests.first_hour: what four newcomers do first, from a fresh clone, each step with its seconds.

A hobbyist with a board and a radio, an engineer who serves, a researcher and an Android developer. Nothing is
reused but pip's cache and the machine's packages. A step that fails, or whose output lacks what it promises,
ends its way; the exit code is then 1. It takes half an hour and 14 GB of disk, most of them PyTorch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from common.cli import CommandParser, run_command

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "What is the capital of Japan?"


class Step(NamedTuple):
    """A shell command, and words that its output has to have. serves: it stays, and is ready with them."""

    command: str
    words: str = ""
    serves: bool = False


SERVICE = Step("python -m cloud_anchor.serve --model testbed --port 8099", "ready after", serves=True)
WAYS: dict[str, tuple[Step, ...]] = {
    "board": (
        Step("python3 -m venv .venv && pip install -q '.[edge]'"),
        Step("python -m edge_runtime.fill --sample", "Tokyo"),
        Step("python -m edge_runtime.doctor testbed-qwen", "int8"),
        Step(f"echo '{QUESTION}' | python -m edge_runtime.chat"),
        Step(f"python -m links.ask --link udp:127.0.0.1:9 --timeout 2 '{QUESTION}'", "alone"),
    ),
    "engineer": (
        Step("python3 -m venv .venv && pip install -q '.[serve]'"),
        Step(f"python -m cloud_anchor.anchor --model testbed --prompt '{QUESTION}' -o payload.bin"),
        Step(f"python -m edge_runtime.fill payload.bin --prompt '{QUESTION}'", "Tokyo"),
        SERVICE,
        Step(f"python -m edge_runtime.fill --url http://localhost:8099 --prompt '{QUESTION}'", "Tokyo"),
        Step(
            "python -m links.gateway --link udp-listen:7799 --service http://localhost:8099",
            "udp",
            serves=True,
        ),
        Step(f"python -m links.ask --link udp:localhost:7799 '{QUESTION}'", "Tokyo"),
        Step("curl -s localhost:8099/metrics", "process_"),
    ),
    "researcher": (
        Step("make demo", "cloud"),
        Step("make real", "Dream"),
        Step(".venv/bin/python -m lab run fill bytes --prompts 20 -o results-quick", "report.html"),
    ),
    "android": (Step("android_demo/setup-debian.sh"), Step("make aar", "maven")),
}


def walk(name: str, steps: Sequence[Step], folder: Path) -> bool:
    """Does the steps in a fresh clone, and prints a line for each; returns whether all held."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    environment = {**os.environ, "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"}
    environment |= {"XDG_CACHE_HOME": str(folder / ".cache"), "XDG_DATA_HOME": str(folder / ".data")}
    if "PIP_CACHE_DIR" not in environment:
        found = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True)
        environment["PIP_CACHE_DIR"] = found.stdout.strip()
    log = folder / "first-hour.log"
    with ExitStack() as servers:
        for step in steps:
            began, held = time.monotonic(), False
            start = log.stat().st_size if log.exists() else 0
            with log.open("ab") as output:
                process = subprocess.Popen(
                    ["bash", "-c", step.command], cwd=folder, env=environment, stdout=output, stderr=output
                )
            if step.serves:
                servers.callback(process.wait)
                servers.callback(process.terminate)
            while time.monotonic() - began < 1200:
                said = log.read_bytes()[start:].decode(errors="replace")
                code = process.poll()
                if code is not None or (step.serves and step.words in said):
                    held = step.words in said and (code is None if step.serves else code == 0)
                    break
                time.sleep(0.1)
            print(
                f"{name:10} {time.monotonic() - began:6.1f} s  {'ok' if held else 'FAILED'}  {step.command}",
                flush=True,
            )
            if not held:
                process.kill()
                print(log.read_bytes()[start:].decode(errors="replace")[-2000:], file=sys.stderr)
                return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="python -m tests.first_hour", description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"some of {', '.join(WAYS)} (all)")
    chosen = parser.parse_args(argv).ways or list(WAYS)
    if unknown := set(chosen) - set(WAYS):
        parser.error(f"expected some of {', '.join(WAYS)}, found {min(unknown)}")

    def run() -> int:
        good = True
        for name in chosen:
            folder = Path(tempfile.mkdtemp(prefix=f"first-hour-{name}-"))
            try:
                good &= walk(name, WAYS[name], folder / "clone")
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return 0 if good else 1

    return run_command("first_hour", run)


if __name__ == "__main__":
    sys.exit(main())
