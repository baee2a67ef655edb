"""What the tiny pair's questions and answers say: `wording.toml`, in three phrasings each."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

WORDING: dict[str, Any] = tomllib.loads((Path(__file__).parent / "wording.toml").read_text(encoding="utf-8"))
"""Templates for `str.format`; three phrasings in one list each."""
