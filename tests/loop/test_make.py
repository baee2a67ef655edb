"""`make demo` away from an installation, and pip on a Python that is too old: what they say."""

from __future__ import annotations

import shutil
import subprocess
import sys
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


def test_an_older_python_is_named_before_anything_is_resolved() -> None:
    code = (
        "import runpy, sys; from unittest.mock import MagicMock\n"
        "for part in ('builders.hooks', 'metadata'):\n"  # which pip brings
        "    sys.modules[f'hatchling.{part}.plugin.interface'] = MagicMock()\n"
        "sys.version_info = (3, 10, 12)\n"
        "runpy.run_path('distributions/hooks.py')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Python 3.11 or newer is needed, found ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_web_demo_says_what_to_open() -> None:
    command = ["make", "--no-print-directory", "--dry-run", "web-demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    last = done.stdout.splitlines()[-1]
    assert "http://localhost:8000" in last
    assert (ROOT / last.split()[-1].strip('"')).parent.is_dir()
