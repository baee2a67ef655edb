"""`python -m tests.fuzz`: every target for its share of the time, in Python and in Kotlin, one process at a
time.

Responsible for the command line, the processes and the table. Inputs that reach new code are kept in .fuzz,
from run to run, beside findings and the count of executions. Not responsible for the targets (see `targets`,
and `fuzz` in the tests of the Kotlin library) nor for what is measured (see `one_target`).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from android_demo import jvm
from common.cli import CommandParser, option, run_command
from common.errors import InputError

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
STATE = HERE.parents[1] / ".fuzz"
PYTHON = tuple(sorted(file.stem for file in (HERE / "targets").glob("*.py")))
KOTLIN = ("payload", "payload_long", "manifest", "tokenizer", "service_answer")
"""Those of Python's targets that the Kotlin library reads too, in the same form."""

HEAP = "192m"
"""Of Jazzer's start; then a target has 64 MB of it."""
SECONDS_OF_ONE = 20
"""More is a hang."""


class Target(NamedTuple):
    """A target of one language; its state is in a folder of its own."""

    language: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.language})"

    @property
    def folder(self) -> Path:
        return STATE / self.language / self.name

    def command(self, figures: Path) -> list[str]:
        if self.language == "python":
            return [sys.executable, "-m", "tests.fuzz.one_target", self.name, str(figures)]
        options = [f"-Xmx{HEAP}", "-XX:+UseSerialGC", f"-Drepo={jvm.REPO}", "-cp", jvm.class_path()]
        jazzer = ["com.code_intelligence.jazzer.Jazzer", "--target_class=inversespec.edge.fuzz.FuzzTarget"]
        jazzer += ["--instrumentation_includes=inversespec.**", "--disabled_hooks=com.code_intelligence.**"]
        return [
            "java",
            *options,
            *jazzer,
            f"--target_args={self.name} {figures}",
            "--reproducer_path=/dev/null",
        ]


TARGETS = [Target("python", name) for name in PYTHON] + [Target("kotlin", name) for name in KOTLIN]


@dataclass(frozen=True)
class FuzzArguments:
    minutes: float = option(10.0, "in all, divided among the targets", metavar="N")
    only: str | None = option(None, "names, with commas; python or kotlin for all of one", metavar="NAMES")
    replay: str | None = option(
        None, "run this one input of the target named by --only, and stop", metavar="FILE"
    )
    json: bool = option(False, "print one JSON object a target")


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m tests.fuzz",
        description="Hostile inputs, guided by what they reach, for all that reads what strangers send.",
        epilog="example:\n  python -m tests.fuzz --minutes 60 --only payload,frames",
    )
    parser.declare(FuzzArguments)
    args = parser.parse(FuzzArguments, argv)
    return run_command("fuzz", lambda: fuzz(args))


def fuzz(args: FuzzArguments) -> int:
    """Returns 1 where a target has a finding. Raises InputError, and BuildError for Kotlin."""
    wanted = args.only.split(",") if args.only else ["python", "kotlin"]
    if unknown := set(wanted) - {"python", "kotlin", *PYTHON}:
        known = ", ".join(["python", "kotlin", *PYTHON])
        raise InputError(f"--only: expected names of {known}, found {', '.join(sorted(unknown))}")
    chosen = [each for each in TARGETS if each.name in wanted or each.language in wanted]
    if not args.only and (lacking := jvm.missing()):
        print(f"fuzz: Kotlin's targets are left out: {lacking}", file=sys.stderr)
        chosen = [each for each in chosen if each.language == "python"]
    if any(each.language == "kotlin" for each in chosen):
        jvm.compile_tests()
    if args.replay:
        return max(_process(each, [args.replay], None).returncode for each in chosen)
    found = 0
    for number, each in enumerate(chosen):
        row = run(each, 60 * args.minutes / len(chosen))
        found += row["finding"] is not None
        print(json.dumps(row) if args.json else _line(row, first=not number), flush=True)
    return 1 if found else 0


def run(target: Target, seconds: float) -> dict[str, Any]:
    """One run, with what it has shown."""
    inputs, findings = target.folder / "inputs", target.folder / "findings"
    for folder in (inputs, findings):
        folder.mkdir(parents=True, exist_ok=True)
    before = {file.name for file in findings.iterdir()}
    for data in import_module(f"tests.fuzz.targets.{target.name}").seeds():
        (inputs / hashlib.sha1(data).hexdigest()).write_bytes(data)
    committed = CORPUS / target.name
    known = len(list(inputs.iterdir()))
    options = [f"-max_total_time={max(1, round(seconds))}", f"-artifact_prefix={findings}/", str(inputs)]
    figures = target.folder / "figures.json"
    figures.unlink(missing_ok=True)
    process = _process(target, [*options, *([str(committed)] if committed.is_dir() else [])], figures)
    shown = (
        json.loads(figures.read_text()) if figures.exists() else {"executions": 0, "grown": 0, "slowest": []}
    )
    total = target.folder / "executions"
    count = shown["executions"] + (int(total.read_text()) if total.exists() else 0)
    total.write_text(str(count))
    new = sorted({file.name for file in findings.iterdir()} - before)
    finding = None
    if process.returncode or new:
        finding = str(findings / new[0]) if new else f"exit code {process.returncode}"
        (target.folder / "finding.log").write_text(process.stdout)
        print("\n".join(process.stdout.splitlines()[-30:]), file=sys.stderr)
    took, size = max(map(tuple, shown["slowest"]), default=(0.0, 0))
    long = [1e6 * each / length for each, length in shown["slowest"] if length >= 1000]
    return {
        "target": str(target),
        "executions": shown["executions"],
        "executions_of_all_runs": count,
        "slowest_ms": round(1000 * took, 1),
        "slowest_bytes": size,
        "slowest_ms_per_kb": round(max(long), 2) if long else None,
        "grown_mb": round(shown["grown"] / (1 << 20), 1),
        "inputs": len(list(inputs.iterdir())) - known,
        "finding": finding,
    }


def _process(target: Target, options: list[str], figures: Path | None) -> subprocess.CompletedProcess[str]:
    """The process of a target; its files are in memory where there is a folder of that kind."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        command = target.command(figures or Path(folder) / "figures.json")
        libfuzzer = [f"-timeout={SECONDS_OF_ONE}", "-entropic_scale_per_exec_time=1", "-rss_limit_mb=4096"]
        return subprocess.run(
            [*command, *libfuzzer, *options],
            cwd=HERE.parents[1],
            env={**os.environ, "TMPDIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )


def _line(row: dict[str, Any], first: bool) -> str:
    """A row of the table, below its head where it is the first."""
    head = f"{'target':<26}{'executions':>12}{'of all runs':>14}{'slowest ms':>12}{'ms per kB':>11}"
    head += f"{'grown MB':>10}{'new inputs':>12}  finding\n"
    rate = "-" if row["slowest_ms_per_kb"] is None else f"{row['slowest_ms_per_kb']:.2f}"
    line = f"{row['target']:<26}{row['executions']:>12,}{row['executions_of_all_runs']:>14,}"
    line += f"{row['slowest_ms']:>12.1f}{rate:>11}{row['grown_mb']:>10.1f}{row['inputs']:>12}"
    return (head if first else "") + f"{line}  {row['finding'] or 'none'}"


if __name__ == "__main__":
    raise SystemExit(main())
