"""`python -m tests.fuzz`: every target for its share of the time, in Python and in Kotlin, one process at a
time.

Responsible for the command line, the processes and the table. Inputs that reach new code are kept in .fuzz,
from run to run, beside findings and the count of executions. `--fixed` is for CI: the same executions on
every run, from the repository's corpus alone, so that a finding is the fault of a change. Not responsible for
the targets (see `targets`, and `fuzz` in the tests of the Kotlin library) nor for what is measured (see
`one_target`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from android_demo import jvm
from common.cli import CommandParser, option, run_command
from common.errors import InputError

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
STATE = HERE.parents[1] / ".fuzz"
FIGURES = "figures.json"
NOTHING: dict[str, Any] = {"executions": 0, "grown": 0, "slowest": []}
PYTHON = tuple(sorted(file.stem for file in (HERE / "targets").glob("*.py")))
KOTLIN = ("payload", "payload_long", "manifest", "tokenizer", "service_answer")
"""Those of Python's targets that the Kotlin library reads too, in the same form."""

HEAP = "192m"
"""Of Jazzer's start; then a target has 64 MB of it."""
SECONDS_OF_ONE = 60
"""More is a hang, on a machine that does other things too."""

FIXED = 3000
FIXED_OF = {"payload_long": 150, "service_request": 1500, "service_answer": 2000, "tokenizer (python)": 0}
"""Executions with --fixed: seconds of each target. The library behind Python's tokenizer hashes at random, so
no seed gives the same inputs twice: of that target the corpus alone."""


class Target(NamedTuple):
    """A target of one language; its state is in a folder of its own."""

    language: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.language})"

    @property
    def folder(self) -> Path:
        return STATE / self.language / self.name

    def command(self, figures: Path, *, fixed: bool) -> list[str]:
        """Without libFuzzer's options; what Jazzer writes for a debugger goes beside the figures."""
        arguments = [self.name, str(figures), "once" if fixed else "thrice"]
        if self.language == "python":
            return [sys.executable, "-m", "tests.fuzz.one_target", *arguments]
        options = [
            f"-Xmx{HEAP}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Drepo={jvm.REPO}",
            "-cp",
            jvm.class_path(),
        ]
        jazzer = ["com.code_intelligence.jazzer.Jazzer", "--target_class=inversespec.edge.fuzz.FuzzTarget"]
        jazzer += ["--instrumentation_includes=inversespec.**", "--disabled_hooks=com.code_intelligence.**"]
        # Its comparisons are of clocks, and what is compared goes into later inputs.
        jazzer += ["--instrumentation_excludes=inversespec.edge.fuzz.FuzzTarget"]
        return [
            "java",
            *options,
            *jazzer,
            f"--target_args={' '.join(arguments)}",
            f"--reproducer_path={figures.parent}",
        ]


TARGETS = [Target("python", name) for name in PYTHON] + [Target("kotlin", name) for name in KOTLIN]


@dataclass(frozen=True)
class FuzzArguments:
    minutes: float = option(10.0, "in all, divided among the targets", metavar="N")
    only: str | None = option(None, "names, with commas; python or kotlin for all of one", metavar="NAMES")
    fixed: bool = option(False, "the same executions on every run, whatever was found before, as in CI")
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
        return max(replay(each, args.replay) for each in chosen)
    found = 0
    for number, each in enumerate(chosen):
        row = run(each, None if args.fixed else 60 * args.minutes / len(chosen))
        found += row["finding"] is not None
        print(json.dumps(row) if args.json else _line(row, first=not number), flush=True)
    return 1 if found else 0


def replay(target: Target, file: str) -> int:
    """One input again; what comes of it is printed where it is a finding."""
    with _scratch() as scratch:
        process = _process(target, [file], scratch, fixed=True)
    if process.returncode:
        print(process.stdout, file=sys.stderr)
    return process.returncode


def run(target: Target, seconds: float | None) -> dict[str, Any]:
    """One run of so many seconds, or the fixed one, with what it has shown."""
    findings = target.folder / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    before = {file.name for file in findings.iterdir()}
    with _scratch() as scratch:
        inputs = target.folder / "inputs" if seconds else scratch / "inputs"
        inputs.mkdir(exist_ok=True)
        committed = [file.read_bytes() for file in sorted((CORPUS / target.name).glob("*"))]
        for data in [*import_module(f"tests.fuzz.targets.{target.name}").seeds(), *committed]:
            (inputs / hashlib.sha1(data).hexdigest()).write_bytes(data)
        known = len(list(inputs.iterdir()))
        if seconds:
            # What takes long is chosen less often, so which inputs come is a matter of the machine.
            options = [f"-max_total_time={max(1, round(seconds))}", "-entropic_scale_per_exec_time=1"]
        else:
            runs = FIXED_OF.get(str(target), FIXED_OF.get(target.name, FIXED))
            options = [f"-runs={runs}", "-seed=1", "-reload=0"]
        options += [f"-artifact_prefix={findings}/", str(inputs)]
        process = _process(target, options, scratch, fixed=not seconds)
        figures = scratch / FIGURES
        shown = json.loads(figures.read_text()) if figures.exists() else {**NOTHING}
        reached = sorted(file.name for file in inputs.iterdir())
    if counted := re.search(r"stat::number_of_executed_units: (\d+)", process.stdout):
        shown["executions"] = int(counted[1])
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
        "inputs": len(reached) - known,
        "reached": hashlib.sha256("".join(reached).encode()).hexdigest()[:16],
        "finding": finding,
    }


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for the files of one process, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def _process(
    target: Target, options: list[str], scratch: Path, *, fixed: bool
) -> subprocess.CompletedProcess[str]:
    command = [*(_same_addresses() if fixed else ()), *target.command(scratch / FIGURES, fixed=fixed)]
    return subprocess.run(
        [
            *command,
            f"-timeout={SECONDS_OF_ONE}",
            f"-report_slow_units={SECONDS_OF_ONE}",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
            *options,
        ],
        cwd=HERE.parents[1],
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONHASHSEED": "0", "RUST_BACKTRACE": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


@cache
def _same_addresses() -> tuple[str, ...]:
    """What gives a process the same addresses on every run, where allowed: sets are in their order."""
    setarch = ("setarch", "--addr-no-randomize")
    allowed = (
        shutil.which("setarch") and not subprocess.run([*setarch, "true"], capture_output=True).returncode
    )
    return setarch if allowed else ()


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
