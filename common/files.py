"""Files of the commands: reading, atomic writing, one writer at a time.

Responsible for turning what goes wrong with a file into one error for the user. Not responsible for what is
in them.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.errors import InputError, UserError


def read_text(path: Path, error: type[UserError] = InputError) -> str:
    """UTF-8 text of a file, decompressed where its name ends in .gz. Raises `error`."""
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as fault:
        raise error(f"{path}: expected a readable text file, found {fault}") from None


def read_json(path: Path, error: type[UserError] = InputError) -> dict[str, Any]:
    """The JSON object in a file. Raises `error`."""
    try:
        value = json.loads(read_text(path, error))
    except json.JSONDecodeError as fault:
        raise error(f"{path}: expected JSON, found {fault}") from None
    if not isinstance(value, dict):
        raise error(f"{path}: expected a JSON object, found {type(value).__name__}")
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


@contextmanager
def locked(path: Path, busy: UserError) -> Iterator[None]:
    """Holds the lock of a file, made where it is missing; raises `busy` where another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no such lock on this system
        pass
    except OSError:
        os.close(handle)
        raise busy from None
    try:
        yield
    finally:
        os.close(handle)
