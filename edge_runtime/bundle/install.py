"""Installation: bundles come into the user's folder, from a service or another folder, and leave it.

Responsible for what is in that folder: nothing half-written, nothing replaced unasked, nothing outside of it.
Not responsible for HTTP (see `client`), or for which bundle is used (see `lookup`).

A bundle is put together in a hidden folder beside the others and gets its name in one rename. An interrupted
installation leaves the hidden folder, from which the next one of the same bundle continues. A manifest is
hostile until `Manifest.from_json` has taken it, a file until it has the manifest's SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from common.files import locked
from common.progress import Progress, Silent
from edge_runtime.bundle.bundle import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Bundle,
    Manifest,
    parse_manifest,
    read_manifest,
    shipped_bundles,
)
from edge_runtime.bundle.lookup import roots
from edge_runtime.bundle.manifest import FileRecord
from edge_runtime.client.client import BUNDLE_NAME, Client
from edge_runtime.errors import (
    BundleFileError,
    BundleHashError,
    BundleMissingError,
    BundleVariantError,
    CloudUnavailableError,
    UsageError,
)

SPARE_BYTES = 16 << 20
"""Free storage that an installation leaves."""
_LEAST_PROGRESS = 1 << 10
"""Bytes that a request cut off in the middle must have brought for the next one to be sent."""

Source = Callable[[str, FileRecord, BinaryIO, Callable[[bytes], None]], None]
"""Writes a file (its name and record) through a function; the file opened for it may hold a beginning."""


def pull(
    client: Client,
    *,
    name: str | None = None,
    variant: str | None = None,
    replace: bool = False,
    root: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Installs the bundle that a service gives to its devices; returns its folder.

    name: that it gets; by default the service's. variant: the only one to take. root: of installed bundles;
    by default the first of `lookup.roots`. Run again, an interrupted download continues.

    Raises CloudFailureError, BundleError, or UsageError where it is there already, without `replace`.
    """
    name = name or client.bundle_name()
    with client.bundle_file(MANIFEST) as response:
        data = response.read_at_most(MAX_MANIFEST_BYTES)

    def download(file: str, record: FileRecord, part: BinaryIO, write: Callable[[bytes], None]) -> None:
        furthest = part.tell()
        while (start := part.tell()) < record.size:
            try:
                with client.bundle_file(file, start) as response:
                    if response.first_byte != start:
                        _empty(part)
                    for piece in response.pieces(record.size - part.tell()):
                        write(piece)
            except CloudUnavailableError:
                if part.tell() < furthest + _LEAST_PROGRESS:
                    raise
            if part.tell() < record.size and part.tell() < furthest + _LEAST_PROGRESS:
                raise CloudUnavailableError(
                    f"{client.url}: expected {record.size} bytes of {file}, found fewer"
                )
            furthest = max(furthest, part.tell())

    return _install(
        _one_variant(parse_manifest(data, client.url), variant), name, download, replace, root, progress
    )


def add(
    folder: Path,
    *,
    name: str | None = None,
    variant: str | None = None,
    replace: bool = False,
    root: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Installs a copy of a bundle's folder; otherwise as `pull`."""
    read_manifest(folder)
    data = parse_manifest((folder / MANIFEST).read_bytes(), str(folder))

    def copy(file: str, record: FileRecord, part: BinaryIO, write: Callable[[bytes], None]) -> None:
        try:
            with (folder / file).open("rb") as source:
                source.seek(part.tell())
                while piece := source.read(min(1 << 20, record.size - part.tell())):
                    write(piece)
        except OSError as error:
            raise BundleFileError(
                f"{folder / file}: expected a readable file, found: {error.strerror}"
            ) from None

    return _install(_one_variant(data, variant), name or folder.resolve().name, copy, replace, root, progress)


def remove(name: str, root: Path | None = None) -> Path:
    """Deletes an installed bundle; returns where it was. Raises UsageError or BundleMissingError."""
    root = root or roots()[0]
    _check_name(name)
    target = root / name
    if not (target / MANIFEST).is_file():
        if name in shipped_bundles():
            raise UsageError(f"{name}: expected an installed bundle, found one that ships with this package")
        names = ", ".join(sorted(path.parent.name for path in root.glob(f"[!.]*/{MANIFEST}"))) or "none"
        raise BundleMissingError(
            f"{name}: expected an installed bundle, found none in {root}; there: {names}"
        )
    with _one_at_a_time(root):
        _discard(target)
    return target


def _one_variant(data: dict[str, Any], variant: str | None) -> dict[str, Any]:
    """A manifest with one of its variants, or with all."""
    known = Manifest.from_json(data).variants
    if variant is None:
        return data
    if variant not in known:
        raise BundleVariantError(f"expected a variant of {', '.join(sorted(known))}, found {variant!r}")
    return data | {"variants": {variant: data["variants"][variant]}, "default_variant": variant}


def _install(
    data: dict[str, Any],
    name: str,
    source: Source,
    replace: bool,
    root: Path | None,
    progress: Progress | None,
) -> Path:
    """Puts a bundle together and gives it its name. data: the content of its manifest."""
    root = root or roots()[0]
    _check_name(name)
    target = root / name
    if target.exists() and not replace:
        raise UsageError(f"{target}: expected no such bundle yet, found one. Add --replace, or give a --name")
    if target.exists() and not (target / MANIFEST).is_file():
        raise UsageError(f"{target}: expected a bundle to replace, found something else. Give another --name")
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    manifest = Manifest.from_json(data)
    total = sum(record.size for record in manifest.records.values())
    stage = root / f".{name}.{hashlib.sha256(text.encode()).hexdigest()[:12]}.part"
    try:
        stage.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(root):
            _check_storage(stage, total)
            with (progress or Silent()).stage(name, total) as step:
                for file, record in manifest.records.items():
                    (stage / file).parent.mkdir(parents=True, exist_ok=True)
                    _write(stage / file, file, record, source, step)
            (stage / MANIFEST).write_text(text, encoding="utf-8")
            Bundle.open(stage, verify=False).verify_contract()
            _publish(stage, target)
    except OSError as error:
        raise BundleFileError(
            f"{error.filename or root}: expected a place for {total} bytes, found: {error.strerror}"
        ) from None
    for left in root.glob(f".{name}.*.part"):  # of other versions of this bundle
        shutil.rmtree(left, ignore_errors=True)
    return target


def _write(path: Path, name: str, record: FileRecord, source: Source, step: Callable[[int], None]) -> None:
    """A file with its record's size and SHA-256, continued where there is a beginning."""
    digest = hashlib.sha256()
    with path.open("a+b") as part:
        if part.tell() > record.size:
            _empty(part)
        part.seek(0)
        while piece := part.read(1 << 20):
            digest.update(piece)
        step(part.tell())
        at = part.tell()

        def write(piece: bytes) -> None:
            nonlocal digest, at
            if part.tell() != at:  # the source began anew
                step(-at)
                digest, at = hashlib.sha256(), 0
            part.write(piece)
            digest.update(piece)
            at += len(piece)
            step(len(piece))

        source(name, record, part, write)
        found = part.tell()
    if found != record.size or digest.hexdigest() != record.sha256:
        path.unlink()
        raise BundleHashError(
            f"{name}: expected {record.size} bytes of SHA-256 {record.sha256}, found {found} of "
            f"{digest.hexdigest()}: it was changed on its way or where it comes from. Try again."
        )


def _empty(part: BinaryIO) -> None:
    part.seek(0)
    part.truncate()


def _check_storage(stage: Path, total: int) -> None:
    held = sum(path.stat().st_size for path in stage.rglob("*") if path.is_file())
    needed, free = total - held + SPARE_BYTES, shutil.disk_usage(stage).free
    if free < needed:
        raise BundleFileError(
            f"{stage.parent}: expected {needed >> 20} MB of free storage, found {free >> 20}. "
            "Delete something, or take one --variant"
        )


def _check_name(name: str) -> None:
    if not BUNDLE_NAME.fullmatch(name):
        raise UsageError(f"name: expected letters, digits and . _ -, at most 64, found {name!r:.80}")


def _one_at_a_time(root: Path) -> Any:
    root.mkdir(parents=True, exist_ok=True)
    busy = f"{root}: expected one installation at a time, found another running. Wait for it"
    return locked(root / ".lock", UsageError(busy))


def _publish(stage: Path, target: Path) -> None:
    """Gives a bundle its name, in place of the one that has it, which is put back where that fails."""
    old = target.with_name(f".{target.name}.old")
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(target, old)
    try:
        os.rename(stage, target)
    except BaseException:
        if old.exists():
            os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _discard(target: Path) -> None:
    """Deletes a bundle; a link to one is deleted, not what it leads to."""
    if target.is_symlink():
        target.unlink()
        return
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    os.rename(target, old)
    shutil.rmtree(old)
