"""Files of the commands: reading, atomic writing, one writer at a time.

Responsible for turning what goes wrong with a file into one error for the user. Not responsible for what is
in them.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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


def read_bounded(
    path: str | Path,
    most: int,
    error: type[UserError] = InputError,
    large: type[UserError] | None = None,
) -> bytes:
    """The bytes of a file, or of standard input for -, at most `most`. Raises `error`, of more `large`."""
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else open(path, "rb") as file:
            data = bytearray()  # in parts: one read allocates all of `most`; a short one is the last
            while len(data) <= most and not len(data) % (1 << 20) and (part := file.read(1 << 20)):
                data += part
    except OSError as fault:
        raise error(f"{path}: expected a readable file, found: {fault.strerror}") from None
    if len(data) > most:
        raise (large or error)(f"{path}: expected at most {most} bytes, found more")
    return bytes(data)


def read_json(path: Path, error: type[UserError] = InputError) -> dict[str, Any]:
    """The JSON object in a file. Raises `error`."""
    return json_object(read_text(path, error), str(path), error)


def json_object(text: str, where: str, error: type[UserError] = InputError) -> dict[str, Any]:
    """The JSON object in a text. Raises `error`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise error(f"{where}: expected JSON, found {fault}") from None
    if not isinstance(value, dict):
        raise error(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is never seen half-written."""
    beside = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")  # beside other writers
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path, busy: UserError | None = None) -> Iterator[None]:
    """Holds the lock of a file, made where it is missing; waits for another process that has it, or raises
    `busy` where that is given.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
    except ImportError:  # no such lock on this system
        pass
    except OSError:
        os.close(handle)
        if busy is None:
            raise
        raise busy from None
    try:
        yield
    finally:
        os.close(handle)
