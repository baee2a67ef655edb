"""`python -m tests.fuzz.one_target NAME FIGURES once|thrice [libFuzzer's options] CORPUS...`: under atheris.

Responsible for instrumenting what a target reads with, for the bound on its memory, and for the figures of
its run, which are in the file FIGURES at least once a second. An exception that is not
documented ends the process.
"""

from __future__ import annotations

import ast
import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

MEGABYTES = 64
"""That a target may allocate beyond what its libraries and its seeds take."""

PLAIN = [
    f"payload.codecs.{name}"
    for name in ("adaptive_model", "fenwick_tree", "predictive", "range_coder", "rank_codes", "token_model")
]
"""Not instrumented: inner loops, which take ten times as long with it, and comparisons at which
atheris fails."""


def memory(field: str) -> int:
    """Bytes, by a field of this process's status: VmRSS, VmHWM (its peak), VmData."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


class Figures:
    """What one run has shown so far.

    slowest_of: seconds of the processor, and the length of that input, by the bits of the length.
    thrice: an input that is slow runs again, and the least of three counts. What it reaches then depends on
    the machine.
    """

    def __init__(self, file: Path, *, thrice: bool) -> None:
        self.file, self.executions, self.slowest_of = file, 0, dict[int, tuple[float, int]]()
        self._again = 2 if thrice else 0
        self._began, self._written = memory("VmHWM"), 0.0

    def measure(self, work: Callable[[bytes], None], data: bytes) -> None:
        """Run one input."""
        self.executions += 1
        took = _seconds(work, data)
        bits = len(data).bit_length()
        known = self.slowest_of.get(bits, (0.0, 0))[0]
        for _ in range(self._again):
            if took > known:
                took = min(took, _seconds(work, data))
        if took > known:
            self.slowest_of[bits] = took, len(data)
        if self.executions % 512 == 0 or time.monotonic() - self._written >= 1:
            self._written = time.monotonic()
            figures = {
                "executions": self.executions,
                "grown": max(0, memory("VmHWM") - self._began),
                "slowest": list(self.slowest_of.values()),
            }
            self.file.write_text(json.dumps(figures))


def _seconds(work: Callable[[bytes], None], data: bytes) -> float:
    began = time.process_time()
    work(data)
    return time.process_time() - began


def documented(target: ModuleType) -> Callable[[bytes], None]:
    """The target, whose documented errors are as good as a result."""

    def work(data: bytes) -> None:
        with suppress(*target.ALLOWED):
            target.run(data)

    return work


def instrumented(name: str) -> list[str]:
    """What a target wants instrumented, read from its text: a module is instrumented as it is imported."""
    tree = ast.parse((Path(__file__).parent / "targets" / f"{name}.py").read_text())
    values = {ast.unparse(each.targets[0]): each.value for each in tree.body if isinstance(each, ast.Assign)}
    return list(ast.literal_eval(values["INSTRUMENTED"]))


def main() -> None:
    import atheris

    name, figures, times, *options = sys.argv[1:]
    with atheris.instrument_imports(include=instrumented(name), exclude=PLAIN):
        target = import_module(f"tests.fuzz.targets.{name}")
    work = documented(target)
    for seed in target.seeds():
        work(seed)
    gc.freeze()  # what was there before is not looked at again and again
    seen = Figures(Path(figures), thrice=times == "thrice")
    mutator = getattr(target, "mutated", None)
    more = {}
    if mutator is not None:
        more["custom_mutator"] = lambda data, most, seed: mutator(bytes(data), most, seed, atheris.Mutate)
    # libFuzzer starts itself again by this, through a shell, to merge corpora.
    again = f"{sys.executable} -m tests.fuzz.one_target {name} {figures} {times}"
    arguments = [again, f"-max_len={target.MAX_BYTES}", *options]
    atheris.Setup(arguments, lambda data: seen.measure(work, data), **more)
    most = memory("VmData") + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
