"""The wheels of the tree's distributions, in the form of a release.

Responsible for building them and for what is in each: the device's has the device's rooms and one small
bundle, and every file of a room lies in exactly one wheel. Not responsible for running what is in them.
"""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from pathlib import Path

from common.version import __version__
from tests.extras.environment import REPOSITORY, BrokenPromiseError, output

DEVICE = {"common", "payload", "edge_runtime", "links"}
ROOMS = DEVICE | {"convert", "cloud_anchor", "lab"}
BUNDLE = "testbed-qwen"
MOST_BYTES = 6_000_000
"""Of the device's wheel."""


def copy_tree(folder: Path) -> Path:
    """A copy of the checkout without what git ignores: nothing left from earlier gets into a wheel."""
    for name in _files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, folder / name)
    return folder


def build_wheels(tree: Path) -> dict[str, Path]:
    """The wheels by the name of their distribution, made by `make wheels`."""
    output(["make", "--directory", str(tree), "wheels", f"VENV={sys.prefix}"])
    return {path.name.split("-")[0].replace("_", "-"): path for path in (tree / "dist").glob("*.whl")}


def check_wheels(wheels: Mapping[str, Path]) -> None:
    """Raises BrokenPromiseError where a file is missing or too much, or an index would refuse a wheel."""
    packed = {name: _packed(path) for name, path in wheels.items()}
    device = packed["inverse-speculation"]
    if (rooms := {name.split("/")[0] for name in device}) != DEVICE:
        raise BrokenPromiseError(f"expected the rooms {DEVICE} in the device's wheel, found {rooms}")
    bundles = {name.split("/")[2] for name in device if name.startswith("edge_runtime/bundles/")}
    if bundles != {BUNDLE}:
        raise BrokenPromiseError(f"expected the bundle {BUNDLE} in the device's wheel, found {bundles}")
    if (size := wheels["inverse-speculation"].stat().st_size) > MOST_BYTES:
        raise BrokenPromiseError(f"expected {MOST_BYTES} bytes of the device's wheel at most, found {size}")
    expected = Counter(name for name in _files() if name.split("/")[0] in ROOMS)
    found = Counter(name for names in packed.values() for name in names)
    if wrong := sorted(set((expected - found) + (found - expected))):
        raise BrokenPromiseError(f"expected each file of the rooms in one wheel, found otherwise: {wrong}")
    for path in wheels.values():
        metadata = _metadata(path)
        if (found := metadata["Version"]) != __version__:
            raise BrokenPromiseError(f"{path.name}: expected version {__version__}, found {found}")
        if wrong := [text for text in _others_required(metadata) if not text.endswith(f"=={__version__}")]:
            raise BrokenPromiseError(f"{path.name}: expected others of the same version, found {wrong}")
        if wrong := re.findall(r"\]\((?!https:)[^)]*\)", str(metadata.get_payload())):
            raise BrokenPromiseError(
                f"{path.name}: expected a page without links into the tree, found {wrong}"
            )
        for field in ("Classifier", "Keywords", "Project-URL", "Summary"):
            if not metadata[field]:
                raise BrokenPromiseError(f"{path.name}: expected the field {field}, found none")
    output([sys.executable, "-m", "twine", "check", "--strict", *map(str, wheels.values())])
    print(f"wheels: {', '.join(f'{p.name} {p.stat().st_size / 1e6:.1f} MB' for p in wheels.values())}")


def _files() -> list[str]:
    """Files of the checkout, those that git does not track yet among them."""
    listed = output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).split("\0")
    return [name for name in listed if name and (REPOSITORY / name).is_file()]


def _packed(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def _others_required(metadata: Message) -> list[str]:
    """What a wheel requires of the other distributions, conditions left out."""
    required = [text.partition(";")[0] for text in metadata.get_all("Requires-Dist", ())]
    return [text for text in required if re.match(r"inverse-speculation(?!\[)", text)]


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))
