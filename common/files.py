"""Files of the commands: reading, atomic writing.

Responsible for turning what goes wrong with a file into one InputError. Not responsible for their content.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from common.errors import InputError


def read_text(path: Path) -> str:
    """UTF-8 text of a file, decompressed where its name ends in .gz. Raises InputError."""
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a readable text file, found {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises InputError."""
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: expected JSON, found {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is never seen half-written."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
