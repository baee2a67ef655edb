"""API keys, kept as hashes and compared in constant time.

Responsible for reading keys and for checking the header Authorization. Not responsible for the rest of HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from cloud_anchor.errors import RequestError
from common.files import read_text

VARIABLE = "CLOUD_ANCHOR_KEYS"
LEAST_CHARACTERS = 16


class ApiKeys:
    """A set of keys; an empty one admits every request."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Raises RequestError for a key that is too short to be secret, or that a header cannot carry."""
        self._hashes = []
        for number, key in enumerate(keys, 1):
            if len(key) < LEAST_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
                raise RequestError(
                    f"key {number}: expected at least {LEAST_CHARACTERS} printable ASCII characters without "
                    f"spaces, found {len(key)} characters. Make one: openssl rand -hex 24"
                )
            self._hashes.append(_hash(key))

    @classmethod
    def read(cls, path: Path | None, environment: Mapping[str, str] = os.environ) -> ApiKeys:
        """Keys of a file, one per line (# begins a comment), or of the environment, separated by commas."""
        if path is None:
            return cls(key.strip() for key in environment.get(VARIABLE, "").split(",") if key.strip())
        lines = map(str.strip, read_text(path, RequestError).splitlines())
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise RequestError(f"{path}: expected one key per line, found none")
        return cls(keys)

    def __len__(self) -> int:
        return len(self._hashes)

    def admit(self, authorization: str | None) -> bool:
        """True where an `Authorization: Bearer KEY` header has one of the keys.

        Every key is compared, so that the time taken does not depend on which one matched or how far.
        """
        if not self._hashes:
            return True
        scheme, _, key = (authorization or "").partition(" ")
        given = _hash(key.strip())
        found = False
        for known in self._hashes:
            found |= hmac.compare_digest(known, given)
        return found and scheme.lower() == "bearer"


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
