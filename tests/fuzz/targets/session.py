"""Session files: a conversation that somebody else may have written."""

from __future__ import annotations

import json
from functools import cache

from edge_runtime.bundle.bundle import BUNDLES
from edge_runtime.errors import SessionFileError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import FORMAT, EdgeSession
from edge_runtime.text.chat import ROLES
from tests.fuzz.json_mutator import mutated as mutated
from tests.fuzz.scratch import folder

ALLOWED = (SessionFileError,)
INSTRUMENTED = ("edge_runtime.session", "edge_runtime.text.chat")
MAX_BYTES = 1 << 12


@cache
def edge() -> EdgeRuntime:
    return EdgeRuntime.open(BUNDLES / "testbed-qwen", threads=1, prepack=False)


def run(data: bytes) -> None:
    path = folder() / "talk.session"
    path.write_bytes(data)
    session = EdgeSession.load(path, edge())
    session.save(path)
    again = EdgeSession.load(path, edge())
    assert (again.messages, again.private) == (session.messages, session.private)
    assert all(message.role in ROLES for message in session.messages)


def seeds() -> list[bytes]:
    talk = [["system", "Be brief."], ["user", "Why?"], ["assistant", "So."]]
    return [
        json.dumps({"format": FORMAT, "private": private, "messages": talk[:size]}).encode()
        for private, size in ((False, 3), (True, 1), (False, 0))
    ]
