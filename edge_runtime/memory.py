"""Anchors that were received before, so that the same question is asked once.

An entry is a payload of codec compact: tens of bytes, under a hash of the contract, the models and the
prompt, whose text is not kept. Responsible for entries, their age and the most bytes of all of them. Not
responsible for what may be remembered (see `online`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from common.files import read_json, write_whole
from edge_runtime.errors import UsageError

FILE = "answers.json"
MAX_BYTES = 1 << 20


class Remembered(NamedTuple):
    """A payload, and the cloud's doubt of it where that is known."""

    payload: bytes
    doubt: float | None


class AnswerMemory:
    """Entries in a file. age: seconds after which one is forgotten. most: bytes of the file."""

    def __init__(
        self,
        folder: Path,
        age: float,
        most: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file, self._age, self._most, self._clock = folder / FILE, age, most, clock

    @staticmethod
    def key(*parts: Any) -> str:
        """The name of an entry: a hash of everything that its answer depends on."""
        return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()

    def get(self, key: str) -> Remembered | None:
        """The entry of a key, where there is one that is young enough and whole."""
        try:
            _, payload, doubt = self._read()[key]
            return Remembered(
                base64.b64decode(payload, validate=True), doubt if doubt is None else float(doubt)
            )
        except (KeyError, ValueError, TypeError):
            return None

    def put(self, key: str, entry: Remembered) -> None:
        """Adds an entry; the oldest go where there are too many. Raises UsageError where it is not kept."""
        kept = self._read()
        kept.pop(key, None)
        kept[key] = [self._clock(), base64.b64encode(entry.payload).decode("ascii"), entry.doubt]
        while len(text := json.dumps(kept).encode("ascii")) > self._most and kept:
            del kept[next(iter(kept))]
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, text)
        except OSError as error:
            raise UsageError(f"{self._file}: expected to keep an answer, found {error}") from None

    def _read(self) -> dict[str, Any]:
        """Entries that are young enough, oldest first; none of a file that is not whole."""
        try:
            if self._file.stat().st_size > self._most:
                return {}
            found = read_json(self._file, UsageError)
            now = self._clock()
            return {key: row for key, row in found.items() if 0 <= now - float(row[0]) < self._age}
        except (OSError, UsageError, KeyError, ValueError, TypeError, IndexError):
            return {}
