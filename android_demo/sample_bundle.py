"""The sample bundle: one variant of a shipped bundle as a zip archive, for `Bundles.importZip`.

Responsible for the choice of its files. Not responsible for their conversion: the bundle is shipped as it is.
"""

from __future__ import annotations

import json
from pathlib import Path

from android_demo.aar import REPOSITORY, zipped
from common.cli import run_command
from common.files import write_whole

BUNDLES = Path(__file__).resolve().parents[1] / "edge_runtime" / "bundles"
SAMPLE = REPOSITORY.parent / "sample" / "testbed-qwen-int8.zip"


def one_variant(bundle: Path, variant: str) -> dict[str, bytes]:
    """The files of a bundle that has this variant alone, by path."""
    manifest = json.loads((bundle / "bundle.json").read_bytes())
    kept = manifest["variants"][variant]
    manifest |= {"variants": {variant: kept}, "default_variant": variant}
    files = {name: (bundle / name).read_bytes() for name in (*manifest["files"], *kept["files"])}
    return files | {"bundle.json": json.dumps(manifest, indent=1).encode()}


def write_sample() -> None:
    SAMPLE.parent.mkdir(parents=True, exist_ok=True)
    write_whole(SAMPLE, zipped(one_variant(BUNDLES / "testbed-qwen", "int8")))
    print(f"{SAMPLE.stat().st_size:>10,} {SAMPLE}")


if __name__ == "__main__":
    raise SystemExit(run_command("sample-bundle", write_sample))
