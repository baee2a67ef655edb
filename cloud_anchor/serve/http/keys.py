"""API keys and their names: kept as hashes, checked against the header Authorization."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cloud_anchor.errors import RequestError
from common.files import read_text

VARIABLE = "CLOUD_ANCHOR_KEYS"
OPEN = "none"
"""In place of keys: everyone is admitted, by whatever name the service is asked for."""

LEAST_CHARACTERS = 16

_KEY = re.compile(rf"[!-~]{{{LEAST_CHARACTERS},}}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ApiKeys:
    """A set of keys, each with a name; an empty one admits what no page of others can have sent.

    everyone: `OPEN` was said.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """keys: each "KEY", or "NAME KEY"; without a name it has that of its hash.

        Raises RequestError for a key that is too short to be secret, or that a header cannot carry.
        """
        keys = list(keys)
        self.everyone = keys == [OPEN]
        self._hashes: dict[bytes, str] = {}
        for number, line in enumerate([] if self.everyone else keys, 1):
            name, _, key = line.rpartition(" ")
            name = name.strip() or f"key-{_hash(key).hex()[:6]}"
            # What is found is a secret, so only its size is told.
            if not _KEY.fullmatch(key):
                expected = f"at least {LEAST_CHARACTERS} printable ASCII characters without spaces"
                remedy = "Make one: openssl rand -hex 24"
                raise RequestError(
                    f"key {number}: expected {expected}, found {len(key)} characters. {remedy}"
                )
            if not _NAME.fullmatch(name):
                expected = "at most 64 letters, digits, '.', '_' and '-' as the name before it"
                raise RequestError(f"key {number}: expected {expected}, found {len(name)} characters")
            self._hashes[_hash(key)] = name

    @classmethod
    def read(cls, path: Path | None, environment: Mapping[str, str] = os.environ) -> ApiKeys:
        """Keys of a file, one per line (# begins a comment), or of the environment, separated by commas.

        A name may stand before each.
        """
        if path is None:
            return cls(key.strip() for key in environment.get(VARIABLE, "").split(",") if key.strip())
        lines = map(str.strip, read_text(path, RequestError).splitlines())
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise RequestError(f"{path}: expected one key per line, found none")
        return cls(keys)

    def __len__(self) -> int:
        return len(self._hashes)

    def name(self, authorization: str | None) -> str | None:
        """Name of the key in an `Authorization: Bearer KEY` header; None for no key, or an unknown one.

        Hashes are looked up, so the time that it takes says nothing of a key.
        """
        scheme, _, key = (authorization or "").partition(" ")
        return self._hashes.get(_hash(key.strip())) if scheme.lower() == "bearer" else None


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
