"""A trial of a grammar in a process of its own, with limits of time and memory.

Responsible for one clear error for a grammar that would not compile in bounded time and memory: the engine's
own limits bound every step of an answer, but not all of what it does before the first. Not responsible for
what is wrong with a grammar (see `ending.byte_matcher`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from edge_runtime.grammar.errors import GrammarError
from edge_runtime.grammar.grammar import Grammar, Kind

SECONDS = 3
"""Most seconds of the processor for a trial."""
PATIENCE = 4
"""Times as many by the clock, on a machine that does other things."""
MEMORY = 1 << 30
"""Most bytes of its address space."""

_REFUSED = 3


@lru_cache(256)
def trial(grammar: Grammar) -> None:
    """Raises GrammarError for a grammar that cannot be used, or not within the limits."""
    grammar.rules()
    root = str(Path(__file__).parents[2])
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, grammar.kind],
            input=grammar.text.encode("utf-8"),
            capture_output=True,
            timeout=SECONDS * PATIENCE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
        )
    except subprocess.TimeoutExpired:
        raise _too_large(grammar) from None
    if done.returncode == _REFUSED:
        raise GrammarError(done.stdout.decode("utf-8", "replace").strip())
    if done.returncode:
        raise _too_large(grammar)


def _too_large(grammar: Grammar) -> GrammarError:
    return GrammarError(
        f"{grammar}: expected one that compiles within {SECONDS} s and {MEMORY >> 20} MiB, found one that "
        "does not. Ask for less at once: fewer properties, patterns or repetitions."
    )


def main() -> int:
    """Compiles the grammar that standard input has; for `trial` only."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from edge_runtime.grammar.ending import byte_matcher, check

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    grammar = Grammar(Kind(sys.argv[1]), sys.stdin.buffer.read().decode("utf-8"))
    try:
        matcher = byte_matcher(grammar)
        matcher.compute_bitmask()
        check(matcher, grammar)
    except GrammarError as error:
        print(error)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
