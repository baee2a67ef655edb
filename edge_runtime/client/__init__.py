"""HTTP client of the anchor service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.cli import option

KEY_VARIABLE = "CLOUD_ANCHOR_KEY"
"""Environment variable of a service's key."""


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """The option of a service's key (see `client.open_client`)."""

    key_file: Path | None = option(None, f"file with its key; default: ${KEY_VARIABLE}")
