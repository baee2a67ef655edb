"""Hooks of hatchling: what the device's extras require, and the files of the other distributions.

The tree holds four distributions, all of one version: the device's at its root, the others in the folders
beside this file. Not responsible for requirements: each pyproject.toml states its own.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

if sys.version_info < (3, 11):  # noqa: UP036 - before pip resolves anything: an old pip tries for ever
    sys.exit(f"Python 3.11 or newer is needed, found {sys.version.split()[0]}")

import tomllib

HERE = Path(__file__).resolve().parent
OTHER = re.compile(r"inverse-speculation-(?P<folder>\w+)(\[(?P<extras>.*)\])?")
"""Another distribution, as an extra names it."""


class Requirements(MetadataHookInterface):
    """Writes what a distribution requires of the others: by name and version; an extra, as fits the build.

    release:  other distributions by name and version, from an index (with INVERSESPEC_RELEASE=1).
    checkout: other distributions of the same checkout.
    editable: the requirements of the others, and their commands. The rooms are imported from the checkout
              itself: an installed copy would hide what is edited there.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        pin = f"=={metadata['version']}"
        if "dependencies" in self.config:
            metadata["dependencies"] = [
                text + pin if text.startswith("inverse-speculation") else text
                for text in self.config["dependencies"]
            ]
            return
        release = pin if "INVERSESPEC_RELEASE" in os.environ else None
        editable = "INVERSESPEC_EDITABLE" in os.environ
        metadata["optional-dependencies"] = {
            extra: [text for name in names for text in _required(name, release, editable)]
            for extra, names in self.config["extras"].items()
        }
        if editable:
            for file in HERE.glob("*/pyproject.toml"):
                metadata["scripts"] |= _read(file.parent.name)["project"]["scripts"]


class Files(BuildHookInterface):
    """Puts the folders `folders` of the tree into a wheel, without those in `without`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = HERE.parent
        without = {root / folder for folder in self.config.get("without", ())}
        for folder in self.config["folders"]:
            for file in sorted((root / folder).rglob("*")):
                hidden = "__pycache__" in file.parts or not without.isdisjoint(file.parents)
                if file.is_file() and not hidden:
                    build_data["force_include"][str(file)] = str(file.relative_to(root))


def _required(name: str, release: str | None, editable: bool) -> list[str]:
    other = OTHER.fullmatch(name)
    if other is None:
        return [name]
    if editable:
        file = _read(other["folder"])
        extras = other["extras"].split(",") if other["extras"] else []
        required = file["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
        lists = [required, *(file["project"]["optional-dependencies"][extra] for extra in extras)]
        return [text for texts in lists for text in texts if not text.startswith("inverse-speculation")]
    return [f"{name}{release}" if release else f"{name} @ {(HERE / other['folder']).as_uri()}"]


def _read(folder: str) -> dict[str, Any]:
    return tomllib.loads((HERE / folder / "pyproject.toml").read_text(encoding="utf-8"))
