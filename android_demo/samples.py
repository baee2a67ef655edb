"""The app's assets: the tiny bundle, and sample payloads from its diffusion model.

Responsible for the prompts and the layout of the assets.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

from cloud_anchor.model.checkpoint import find_checkpoint
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from common.cli import run_command
from edge_runtime.bundle.bundle import BUNDLES

HERE = Path(__file__).resolve().parent
BUNDLE = BUNDLES / "tiny-qwen"
ASSETS = HERE / "build" / "assets"
FRACTION = 0.1
PROMPTS = (
    "Describe the town of Branstead. Mention its bird, dish, mayor, age, region, festival and river.",
    "What is the town of mayor Verman?\n- Esgate A\n- Osford B\n- Torstead C\n- Falby D",
    "Fay has 12 stamps. Fay buys 1 more. Fay buys 9 more. How many stamps does Fay have now?",
    "Define handle(xs) in Python. It gives the sum of the numbers of xs.",
    "Describe the town of Holden. Mention its region, bird, festival, mayor and size.",
)
"""In the order of the app's list. Held out: neither model was trained on them."""
UNSURE = 4
"""The sample whose payload also says how sure the cloud is."""


def write_assets() -> None:
    """Writes the assets, unless they are up to date."""
    key = content_key()
    stamp = ASSETS.with_name("assets.stamp")
    if ASSETS.is_dir() and stamp.is_file() and stamp.read_text() == key:
        return
    shutil.rmtree(ASSETS, ignore_errors=True)
    copy_bundle(ASSETS / "bundle")
    folder = ASSETS / "samples"
    folder.mkdir(parents=True)
    pipeline = Pipeline.open("tiny", edge=BUNDLE)
    plan = pipeline.plan()
    made = pipeline.make(PROMPTS, replace(plan, steps=steps_for(FRACTION, plan.total_steps)))
    index = []
    for number, result in enumerate(made):
        name = f"{number}.payload"
        (folder / name).write_bytes(pipeline.payload(result, confidence=number == UNSURE))
        index.append({"title": result.prompt.splitlines()[0], "prompt": result.prompt, "file": name})
    (folder / "index.json").write_text(json.dumps(index, indent=1), "utf-8")
    stamp.write_text(key)


def content_key() -> str:
    """Hash of everything that determines the samples: both models, the payload format, this file."""
    digest = hashlib.sha256()
    weights = find_checkpoint("tiny")
    files = [*weights.rglob("*"), *BUNDLE.rglob("*"), HERE.parent / "payload" / "model.bin", Path(__file__)]
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
