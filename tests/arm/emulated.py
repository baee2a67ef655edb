"""A pytest plugin for the emulated run: tests that cannot work there are skipped with the reason.

Under qemu's user emulation a child process is started by the host's kernel, so a test that starts Python
would start the host's. Such a test skips itself the moment it tries.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any, NoReturn

import pytest
from hypothesis import settings

REASON = "starts a child process: under qemu's user emulation that would be the host's own Python"

STATISTICAL = "draws thousands of texts: minutes under emulation, and the arithmetic is the host's"

os.environ.setdefault("SHARED_FILLS", "16")  # each takes a second; how threads take turns is the host's

settings.register_profile("emulated", max_examples=10, deadline=None, derandomize=True)
settings.load_profile("emulated")


def _skip(*args: Any, **options: Any) -> NoReturn:
    pytest.skip(REASON)


@pytest.fixture(autouse=True, scope="session")
def no_child_processes() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", _skip)
        patch.setattr(os, "fork", _skip)
        patch.setattr(os, "posix_spawn", _skip)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("statistical"):
            item.add_marker(pytest.mark.skip(reason=STATISTICAL))
