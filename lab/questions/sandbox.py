"""Sandbox for untrusted code: a separate process with limits.

Responsible for isolation and limits. Not responsible for the code's purpose.

The child is a new interpreter without site packages and environment. It drops to an unprivileged user and
moves to an empty network namespace where it is permitted to, and then forbids itself new file descriptors,
hence files and sockets, by a hard limit that only a privileged process could raise. Processor time, memory
and processes are limited too.
"""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache

SECONDS = 5
MEMORY = 512 << 20

_RUNNER = """
import sys, os, resource, ctypes
import typing, math, re, collections, itertools, functools, heapq, bisect, string, operator, copy, random
import statistics, decimal, fractions, datetime, hashlib, json, enum, dataclasses, abc, cmath, textwrap
source = sys.stdin.read()
ctypes.CDLL(None).unshare(0x40000000 | (0 if os.getuid() == 0 else 0x10000000))  # network, user namespace
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for what, most in (("CPU", %d), ("AS", %d), ("FSIZE", 0), ("NPROC", 0), ("NOFILE", 3), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + what), (most, most))
sys.modules.update(ctypes=None, resource=None)  # which some interpreters have built in
del ctypes, resource
exec(compile(source, "answer", "exec"), {"__name__": "__main__"})
os._exit(%d)
"""

_DONE = 42
"""Exit code of a child whose program has run to its end, and not called exit()."""


@lru_cache(4096)  # the conditions share many of their texts
def passes(source: str) -> bool:
    """True where a program runs to its end within the limits and without an exception."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _RUNNER % (SECONDS, MEMORY, _DONE)],
            input=source.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=2 * SECONDS,
            env={},
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == _DONE
