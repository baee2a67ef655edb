"""The app's assets: the tiny bundle, and sample payloads from the shipped diffusion model.

Responsible for the choice of prompts and the layout of the assets. Prompts are held out: neither model was
trained on them. Of the first few of each task, the first that both models together answer correctly is used.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

from cloud_anchor.model.checkpoint import find_checkpoint
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.selection.select import Selection
from common.cli import run_command
from edge_runtime.bundle.lookup import SHIPPED
from lab.pairs.problem import Problem
from lab.pairs.tiny.check import is_right
from lab.pairs.tiny.tasks import problems

HERE = Path(__file__).resolve().parent
ASSETS = HERE / "build" / "assets"
FRACTION = 0.1
TRIED = 8
SHOWN = (
    ("description", "hard"),
    ("choice", "medium"),
    ("arithmetic", "medium"),
    ("code", "easy"),
    ("description", "easy"),
)
"""Task and difficulty of each sample, in the order of the app's list."""
UNSURE = 4
"""The sample whose payload also says how sure the cloud is."""


def main() -> int:
    return run_command("samples", write_assets)


def write_assets() -> int:
    """Writes the assets, unless they are up to date."""
    key = content_key()
    stamp = ASSETS.with_name("assets.stamp")
    if ASSETS.is_dir() and stamp.is_file() and stamp.read_text() == key:
        return 0
    shutil.rmtree(ASSETS, ignore_errors=True)
    copy_bundle(ASSETS / "bundle")
    folder = ASSETS / "samples"
    folder.mkdir(parents=True)
    pipeline = Pipeline.open("tiny", edge=SHIPPED)
    index = [sample(pipeline, folder, number, *kind) for number, kind in enumerate(SHOWN)]
    (folder / "index.json").write_text(json.dumps(index, indent=1), "utf-8")
    stamp.write_text(key)
    return 0


def content_key() -> str:
    """Hash of everything that determines the samples: both models, the payload format, this file."""
    digest = hashlib.sha256()
    weights = find_checkpoint("tiny")
    files = [*weights.rglob("*"), *SHIPPED.rglob("*"), HERE.parent / "payload" / "model.bin", Path(__file__)]
    for path in sorted(path for path in files if path.is_file()):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def copy_bundle(into: Path) -> None:
    """Copies the files that the manifest lists, without those of other runtimes."""
    manifest = json.loads((SHIPPED / "bundle.json").read_text("utf-8"))
    names = {"bundle.json", *manifest["files"]}
    names.update(name for variant in manifest["variants"].values() for name in variant["files"])
    for name in sorted(names):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SHIPPED / name, into / name)


def sample(pipeline: Pipeline, folder: Path, number: int, family: str, difficulty: str) -> dict[str, str]:
    """Writes one payload; returns its entry in the index."""
    drawn = itertools.islice(problems(family, 0, held_out=True), 50 * TRIED)
    tried: list[Problem] = [problem for problem in drawn if problem.difficulty == difficulty][:TRIED]
    plan = pipeline.plan()
    plan = replace(plan, steps=steps_for(FRACTION, plan.total_steps))
    made = pipeline.make([problem.prompt for problem in tried], plan, Selection())
    best = 0
    for at, (problem, one) in enumerate(zip(tried, made, strict=True)):
        if one.walk is not None and is_right(problem, pipeline.form.tokenizer.decode(one.walk.text)):
            best = at
            break
    name = f"{number}-{family}.payload"
    (folder / name).write_bytes(made[best].payload(pipeline.form, confidence=number == UNSURE))
    title = tried[best].prompt.splitlines()[0]
    return {"title": title, "prompt": tried[best].prompt, "file": name}


if __name__ == "__main__":
    raise SystemExit(main())
