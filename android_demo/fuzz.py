"""`python -m android_demo.fuzz`: hostile bytes for the payload decoder in Kotlin, in a JVM of 64 MB of heap.

Responsible for the command line and the JVM. `PayloadFuzz.kt` of the library's tests makes the inputs. A
crash, a hang of 20 s or more memory ends it with exit code 1 and the input in hex.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from android_demo import jvm
from common.cli import CommandParser, run_command

HEAP = "64m"


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m android_demo.fuzz",
        description="Feed mutated payloads to the Kotlin decoder: it must refuse or decode each, in 64 MB.",
        epilog="example: python -m android_demo.fuzz --executions 100000 --seed 2",
    )
    parser.add_argument("--executions", type=int, default=1_000_000, metavar="N", help="default: 1,000,000")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the mutations (default 1)")
    args = parser.parse_args(argv)
    return run_command("fuzz", lambda: fuzz(args.executions, args.seed))


def fuzz(executions: int, seed: int) -> int:
    """Compiles the library with its tests and runs the fuzzer; returns its exit code. Raises BuildError."""
    jvm.compile_tests()
    command = ["java", f"-Xmx{HEAP}", "-XX:+UseSerialGC", f"-Drepo={jvm.REPO}", "-cp", jvm.class_path()]
    return subprocess.run([*command, "inversespec.edge.PayloadFuzzKt", str(executions), str(seed)]).returncode


if __name__ == "__main__":
    raise SystemExit(main())
