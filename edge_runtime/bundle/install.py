"""Installation: a bundle comes from a source into the user's folder.

Responsible for what is in that folder: nothing half-written, nothing replaced unasked, nothing outside of it.
Not responsible for HTTP (see `client`, `sources`), or for which bundle is used (see `lookup`).

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
from edge_runtime.bundle.bundle import MAX_MANIFEST_BYTES, Bundle, file_record, parse_manifest
from edge_runtime.bundle.lookup import roots
from edge_runtime.bundle.manifest import MANIFEST, FileRecord, Manifest
from edge_runtime.bundle.sources import Source
from edge_runtime.client.client import BUNDLE_NAME
from edge_runtime.errors import (
    BundleFileError,
    BundleHashError,
    BundleVariantError,
    CloudUnavailableError,
    UsageError,
)

SPARE_BYTES = 16 << 20
"""Free storage that an installation leaves."""
_LEAST_PROGRESS = 1 << 10
"""Bytes that a request cut off in the middle must have brought for the next one to be sent."""


def pull(
    source: Source,
    *,
    name: str | None = None,
    variant: str | None = None,
    sha256: str | None = None,
    replace: bool = False,
    root: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Installs the bundle of a source, such as a service's `Client`; returns its folder.

    name: that it gets; by default the source's. variant: the only one to take. sha256: of its bundle.json,
    in hex, which has those of all other files; None where the source is trusted. root: of installed bundles;
    by default the first of `lookup.roots`. Run again, an interrupted download continues.

    Raises CloudFailureError, BundleError, or UsageError where it is there already, without `replace`.
    """
    name = name or source.bundle_name()
    if not BUNDLE_NAME.fullmatch(name):
        raise UsageError(f"name: expected letters, digits and . _ -, at most 64, found {name!r:.80}")
    with source.bundle_file(MANIFEST) as response:
        manifest = response.read_at_most(MAX_MANIFEST_BYTES)
    found = hashlib.sha256(manifest).hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise BundleHashError(
            f"{source.url}: expected {MANIFEST} of SHA-256 {sha256:.64}, found {found}: it is another "
            "bundle, or another version of it"
        )
    data = parse_manifest(manifest, source.url)
    if variant is not None:
        data = _one_variant(data, variant)
    root = root or roots()[0]
    target = root / name
    if target.exists() and not replace:
        raise UsageError(f"{target}: expected no such bundle yet, found one. Add --replace, or give a --name")
    if target.exists() and not (target / MANIFEST).is_file():
        raise UsageError(f"{target}: expected a bundle to replace, found something else. Give another --name")
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    records = Manifest.from_json(data).records
    total = sum(record.size for record in records.values())
    stage = root / f".{name}.{hashlib.sha256(text.encode()).hexdigest()[:12]}.part"
    busy = UsageError(f"{root}: expected one installation at a time, found another running. Wait for it")
    try:
        stage.mkdir(parents=True, exist_ok=True)
        with locked(root / ".lock", busy):
            _check_storage(stage, total)
            with (progress or Silent()).stage(name, total) as step:
                for file, record in records.items():
                    (stage / file).parent.mkdir(parents=True, exist_ok=True)
                    _download(source, file, record, stage / file, step)
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


def _one_variant(data: dict[str, Any], variant: str) -> dict[str, Any]:
    """A manifest with one of its variants."""
    if variant not in data["variants"]:
        known = ", ".join(sorted(data["variants"]))
        raise BundleVariantError(f"expected a variant of {known}, found {variant!r}")
    return data | {"variants": {variant: data["variants"][variant]}, "default_variant": variant}


def _download(source: Source, name: str, record: FileRecord, path: Path, step: Callable[[int], None]) -> None:
    """A file with its record's size and SHA-256, continued where there is a beginning."""
    with path.open("a+b") as part:
        if part.tell() > record.size:
            _empty(part)
        step(part.tell())
        furthest = part.tell()
        while (start := part.tell()) < record.size:
            try:
                with source.bundle_file(name, start) as response:
                    if response.first_byte != start:
                        _empty(part)
                        step(-start)
                    for piece in response.pieces(record.size - part.tell()):
                        part.write(piece)
                        step(len(piece))
            except CloudUnavailableError:
                if part.tell() < furthest + _LEAST_PROGRESS:
                    raise
            if part.tell() < record.size and part.tell() < furthest + _LEAST_PROGRESS:
                raise CloudUnavailableError(
                    f"{source.url}: expected {record.size} bytes of {name}, found fewer"
                )
            furthest = max(furthest, part.tell())
    found = file_record(path)
    if found != record:
        path.unlink()
        raise BundleHashError(
            f"{name}: expected {record.size} bytes of SHA-256 {record.sha256}, found {found.size} of "
            f"{found.sha256}: it was changed on its way or where it comes from. Try again."
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
