"""Correctness of answers to tiny problems.

Responsible for finding the answer in a text and for running untrusted functions in a process with limits. Not
responsible for making answers.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import lru_cache

from lab.pairs.problem import Problem
from lab.pairs.tiny.tasks.code import INPUTS

_RUNNER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
source, name, inputs = eval(sys.stdin.read())
safe = {k: __builtins__.__dict__[k] for k in ("sum", "max", "min", "len", "range", "abs", "sorted", "list")}
space = {"__builtins__": safe}
exec(source, space)
print([repr(space[name](xs)) for xs in inputs])
"""


@lru_cache(4096)  # the conditions of an evaluation share most of their texts
def _run(source: str, name: str) -> tuple[str, ...]:
    """Results of the function `name` on `INPUTS`, as `repr`; empty where it does not run.

    The code is untrusted: a fresh interpreter without site packages, a few builtins, no files, no
    processes, 2 s of processor time, 256 MiB.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _RUNNER],
            input=repr((source, name, INPUTS)),
            capture_output=True,
            text=True,
            timeout=5,
        )
    except subprocess.TimeoutExpired:
        return ()
    if done.returncode:
        return ()
    return tuple(eval(done.stdout, {"__builtins__": {}}))  # a list of strings that the runner printed


def is_right(problem: Problem, text: str) -> bool:
    """True where `text` answers `problem` correctly.

    arithmetic: the word after the last "answer is". choice: the letter after the option there. code:
    executed. description: every expected word occurs, in order.
    """
    match problem.family:
        case "code":
            # Attributes of builtins are the only way out of the sandbox.
            if "__" in text:
                return False
            return _run(text, problem.expected[0]) == problem.expected[1:]
        case "description":
            words = iter(re.findall(r"\w+", text))
            return all(value in words for value in problem.expected)
        case _:
            found = re.findall(r"answer is (?:[a-zA-Z]+ )?(\w+)", text)
            return bool(found) and found[-1] == problem.expected[0]
