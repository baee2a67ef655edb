"""`make demo` away from an installation: what it says, and how a prompt arrives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(folder: Path, *settings: str) -> list[str]:
    """The lines of `make demo` with a program in Python's place that prints its arguments."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "<%s>" "$@"; echo\n', encoding="utf-8")
    python.chmod(0o755)
    command = ["make", "--no-print-directory", "demo", f"VENV={folder}", *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("prompt", ["costs $5", '$(X) it\'s "so" `b` $$'])
def test_a_prompt_arrives_as_it_was_given(prompt: str, tmp_path: Path) -> None:
    told, asked = make(tmp_path, f"PROMPT={prompt}")
    assert told.startswith("Installing '.[cloud]'")
    assert asked == f"<-m><cloud_anchor.demo><--prompt><{prompt}>"
