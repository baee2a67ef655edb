"""Makes the app's sample payloads with the tiny diffusion model: for a new pair, or another format.

Responsible for the prompts. The tests compare the payloads with `inputs`.
"""

from __future__ import annotations

import json
from dataclasses import replace

from android_demo.samples import BUNDLE, SAMPLES, digest_of
from cloud_anchor.model.checkpoint import find_checkpoint
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from common.cli import run_command

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


def inputs() -> str:
    """Hash of what the samples depend on: both models, the format's own model."""
    weights = find_checkpoint("tiny")
    model = SAMPLES.parents[1] / "payload" / "model.bin"
    return digest_of(*weights.rglob("*"), *BUNDLE.rglob("*"), model)


def make() -> None:
    pipeline = Pipeline.open("tiny", edge=BUNDLE)
    plan = pipeline.plan()
    made = pipeline.make(PROMPTS, replace(plan, steps=steps_for(FRACTION, plan.total_steps)))
    index = []
    SAMPLES.mkdir(exist_ok=True)
    for number, result in enumerate(made):
        name = f"{number}.payload"
        (SAMPLES / name).write_bytes(pipeline.payload(result, confidence=number == UNSURE))
        index.append({"title": result.prompt.splitlines()[0], "prompt": result.prompt, "file": name})
    (SAMPLES / "index.json").write_text(json.dumps(index, indent=1) + "\n", "utf-8")
    (SAMPLES / "inputs.sha256").write_text(inputs() + "\n", "utf-8")


if __name__ == "__main__":
    raise SystemExit(run_command("make-samples", make, extra="experiments"))
