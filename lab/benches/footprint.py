"""Peak memory of each component (Table 6), each in a process that runs nothing else.

Responsible for the processes and what they run. Not responsible for times (see `phases.timing`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 32
TIME_LIMIT = 900
"""Seconds after which a process is given up: loading a model of gigabytes takes minutes."""

INTERPRETER, PAYLOAD, DEVICE = "Python alone", "payload, encode and decode", "edge model, whole answer"
CLOUD, AWARE = "diffusion model", "diffusion model and edge-aware selection"


@lru_cache(4)
def peaks(model: str, place: str, bundle: Path, variant: str, canvas: int) -> Mapping[str, Mapping[str, int]]:
    """By component, `memory`: its process's peak in bytes, and `gpu`: the most allocated there.

    A component whose process fails is left out. model: as for `load_model`; place: a torch device.
    """
    wanted = {"model": model, "place": place, "bundle": str(bundle), "variant": variant, "canvas": canvas}
    found: dict[str, Mapping[str, int]] = {}
    for part in _PARTS:
        command = [sys.executable, "-m", "lab.benches.footprint", part, json.dumps(wanted)]
        try:
            done = subprocess.run(command, capture_output=True, check=True, timeout=TIME_LIMIT)
            found[part] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, OSError, ValueError, IndexError):
            continue
    return found


def _interpreter(wanted: Mapping[str, Any]) -> None:
    return


def _payload(wanted: Mapping[str, Any]) -> None:
    from payload import AnchorSet, Contract, Shared, decode, encode

    tokenizer = json.loads((Path(wanted["bundle"]) / "tokenizer.json").read_bytes())
    contract = Contract.of(tokenizer, {})
    anchors = AnchorSet.of(dict.fromkeys(range(0, wanted["canvas"], 3), 1), wanted["canvas"], contract)
    shared = Shared(contract, [1] * PROMPT_TOKENS)
    decode(encode(anchors, shared), shared)


def _device(wanted: Mapping[str, Any]) -> None:
    from edge_runtime.decode.forced import FillOptions, fill
    from edge_runtime.runtime import EdgeRuntime
    from payload import AnchorSet

    runtime = EdgeRuntime.open(wanted["bundle"], wanted["variant"])
    canvas = min(wanted["canvas"], runtime.engine.context - PROMPT_TOKENS)
    contract = runtime.bundle.contract
    anchors = AnchorSet.of({canvas - 1: 1}, canvas, contract)  # so that the answer is that long
    for _ in fill(runtime.engine, [1] * PROMPT_TOKENS, anchors, FillOptions(max_tokens=canvas)):
        pass


def _cloud(wanted: Mapping[str, Any]) -> None:
    from cloud_anchor.model.checkpoint import load_model
    from cloud_anchor.sampling.config import DenoiseConfig
    from cloud_anchor.sampling.sampler import denoise

    model = load_model(wanted["model"], device=wanted["place"])
    config = DenoiseConfig(canvas=wanted["canvas"], total_steps=4, steps=2)  # each step takes as much
    denoise(model, [[1] * PROMPT_TOKENS], config)


def _aware(wanted: Mapping[str, Any]) -> None:
    from cloud_anchor.pipeline import Pipeline
    from cloud_anchor.sampling.config import DenoiseConfig

    pipeline = Pipeline.open(wanted["model"], edge=wanted["bundle"], device=wanted["place"])
    pipeline.make(["a"], DenoiseConfig(canvas=wanted["canvas"], total_steps=4, steps=2))


_PARTS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    INTERPRETER: _interpreter,
    PAYLOAD: _payload,
    DEVICE: _device,
    CLOUD: _cloud,
    AWARE: _aware,
}


def main(part: str, wanted: str) -> None:
    """Run one component and print its peaks as a line of JSON."""
    _PARTS[part](json.loads(wanted))
    from edge_runtime.system import peak_rss_bytes

    gpu = 0
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        gpu = int(torch.cuda.max_memory_allocated())
    print(json.dumps({"memory": peak_rss_bytes(), "gpu": gpu}))


if __name__ == "__main__":
    main(*sys.argv[1:])
