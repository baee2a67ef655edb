"""The app's assets: the tiny bundle, and the sample payloads for it, which lie in this repository.

Responsible for the layout of the assets. Not responsible for making the payloads (see `make_samples`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from common.cli import run_command

HERE = Path(__file__).resolve().parent
BUNDLE = HERE.parent / "edge_runtime" / "bundles" / "tiny-qwen"
SAMPLES = HERE / "samples"
ASSETS = HERE / "build" / "assets"


def write_assets() -> None:
    """Writes the assets, unless they are up to date."""
    key = digest_of(*SAMPLES.iterdir(), *BUNDLE.rglob("*"), Path(__file__))
    stamp = ASSETS.with_name("assets.stamp")
    if ASSETS.is_dir() and stamp.is_file() and stamp.read_text() == key:
        return
    shutil.rmtree(ASSETS, ignore_errors=True)
    copy_bundle(ASSETS / "bundle")
    shutil.copytree(SAMPLES, ASSETS / "samples", ignore=shutil.ignore_patterns("*.sha256"))
    stamp.write_text(key)


def digest_of(*files: Path) -> str:
    """Hash of the names and contents of files; folders among them are left out."""
    digest = hashlib.sha256()
    for path in sorted(path for path in files if path.is_file()):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def copy_bundle(into: Path) -> None:
    """Copies the files that the manifest lists, without those of other runtimes."""
    manifest = json.loads((BUNDLE / "bundle.json").read_text("utf-8"))
    names = {"bundle.json", *manifest["files"]}
    names.update(name for variant in manifest["variants"].values() for name in variant["files"])
    for name in sorted(names):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(BUNDLE / name, into / name)


if __name__ == "__main__":
    raise SystemExit(run_command("samples", write_assets))
