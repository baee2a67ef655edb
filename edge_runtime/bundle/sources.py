"""Where a bundle comes from: a folder, a service, or the files of any web server, named by their SHA-256.

Responsible for opening a source by its address. Not responsible for what is done with its files (`install`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlsplit

from edge_runtime.bundle.manifest import MANIFEST
from edge_runtime.client.client import ANY, Client, open_client
from edge_runtime.client.response import Response
from edge_runtime.errors import BundleFileError, UsageError


class WebFolder(Client):
    """A bundle's folder on any web server; `url` is the folder's."""

    def bundle_name(self) -> str:
        return urlsplit(self.url).path.rstrip("/").rpartition("/")[2] or "bundle"

    @contextmanager
    def bundle_file(self, name: str, start: int = 0) -> Iterator[Response]:
        with self.request(f"/{quote(name)}", ANY, start=start) as response:
            yield response


class LocalFile:
    """A file that has been opened, as a `Response`. first_byte: where in it the reading begins."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self.first_byte, self._file = start, file
        file.seek(start)

    def read_at_most(self, size: int) -> bytes:
        data = self._file.read(size + 1)
        if len(data) > size:
            raise BundleFileError(f"{self._file.name}: expected at most {size} bytes, found more")
        return data

    def pieces(self, most: int) -> Iterator[bytes]:
        while most > 0 and (data := self._file.read(min(most, 1 << 20))):
            most -= len(data)
            yield data


class LocalFolder:
    """A bundle in a folder of this machine, such as one on a stick."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.url = folder, str(folder)

    def bundle_name(self) -> str:
        return self._folder.resolve().name

    @contextmanager
    def bundle_file(self, name: str, start: int = 0) -> Iterator[LocalFile]:
        try:
            file = (self._folder / name).open("rb")
        except OSError as error:
            raise BundleFileError(
                f"{self._folder / name}: expected a readable file of the bundle, found: {error.strerror}"
            ) from None
        with file:
            yield LocalFile(file, start)


Source = Client | LocalFolder
"""A bundle that can be fetched."""


def open_source(address: str, key_file: Path | None, timeout: float, sha256: str | None) -> Source:
    """The source at an address: a folder, a service's URL, or the URL of a bundle.json, whose SHA-256 must be
    given, since nothing else says that it is the right one. Raises UsageError.
    """
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"--sha256: expected 64 hex digits, found {sha256!r:.100}")
    if not address.startswith(("http://", "https://")):
        if not (Path(address) / MANIFEST).is_file():
            raise UsageError(
                f"source: expected a bundle's folder, http://... or https://..., found {address!r:.100}"
            )
        return LocalFolder(Path(address))
    client = open_client("source", address.removesuffix(f"/{MANIFEST}"), key_file, timeout)
    if client.url == address:
        return client
    if sha256 is None:
        raise UsageError(f"--sha256: expected that of {address}, found none. Ask whoever offers the bundle")
    return WebFolder(client.url, client.key, client.timeout)
