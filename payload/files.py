"""Files of the commands: bounded reading, atomic writing.

Responsible for turning what goes wrong with a file into one InputError. Not responsible for their content.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

from payload.errors import OversizedPayloadError, UserError
from payload.header import MAX_PAYLOAD_BYTES


class InputError(UserError):
    """A file or an argument cannot be used."""

    exit_code = 2


def read_payload(name: str) -> bytes:
    """Bytes of a payload file, or of standard input for "-"; at most MAX_PAYLOAD_BYTES.

    Raises InputError, or OversizedPayloadError for a larger file.
    """
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_PAYLOAD_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise InputError(f"{name}: expected a readable payload file, found {error.strerror}") from None
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OversizedPayloadError(
            f"{name}: expected at most {MAX_PAYLOAD_BYTES} bytes, found more; this is not a payload"
        )
    return data


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
