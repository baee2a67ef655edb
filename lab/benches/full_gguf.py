"""python -m lab.benches.full_gguf FOLDER: a random GGUF file of Dream-7B's shape, in Q8_0, and its cost.

Makes the file (8.1 GB), and prints what it takes to load and to run a pass with a prompt of 64 tokens, beside
the same shape in PyTorch and bfloat16 (15 GB of memory), each in a process of its own; in brackets the
multiple of PyTorch's time. What a tenth of the steps costs on more cores is calculated: as many times faster
as there are more cores. With --model the files are those of a model, in F32 and Q8_0, beside float32.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from cloud_anchor.model.checkpoint import build_net, load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.families import DREAM_7B, FAMILIES
from cloud_anchor.sampling.protocol import MaskedModel
from common.cli import option, run_options
from edge_runtime.system import peak_rss_bytes, resident_memory
from lab.benches.random_checkpoint import write_tokenizer
from lab.benches.write_gguf import TYPES, StoredTensor, write_tensors
from lab.experiments.gguf import made
from lab.tables import markdown

PROMPT, MASK, END, STEPS, CORES = 64, 303, 300, 13, (4, 8, 16)


def write_random(folder: Path, out: Path) -> None:
    """Write the file; folder: for its configuration and a small tokenizer."""
    write_tokenizer(folder)
    ids = {"mask_token_id": MASK, "eos_token_id": END, "pad_token_id": END}
    (folder / "config.json").write_text(json.dumps({"model_type": "Dream", **ids}))
    draw = np.random.default_rng(0)

    def blocks(shape: torch.Size) -> Any:
        stored = np.empty((shape[0], shape[1] // 32), [("scale", "<f2"), ("values", "i1", 32)])
        stored["scale"] = 3e-4
        stored["values"] = draw.integers(-127, 128, (*stored.shape, 32), np.int8)
        return stored.view(np.uint8).reshape(shape[0], -1)

    net = build_net(DREAM_7B, torch.device("meta"), torch.float32)
    tensors = []
    for name, value in net.named_parameters():
        ones = partial(np.ones, value.shape, np.float32)
        make = ones if value.ndim == 1 else partial(blocks, value.shape)
        tensors.append(StoredTensor(name, value.shape, TYPES["f32" if value.ndim == 1 else "q8_0"], make))
    write_tensors(folder, out, DREAM_7B, "q8_0", tensors)


def in_torch() -> MaskedModel:
    net = build_net(DREAM_7B, torch.device("cpu"), torch.bfloat16)
    state = {name: torch.empty(v.shape, dtype=v.dtype).normal_(0, 0.02) for name, v in net.named_parameters()}
    net.load_state_dict(state, assign=True)
    return DreamModel(net.requires_grad_(False), FAMILIES["Dream"], MASK, frozenset({END}), "random")


def measure(source: str | None, canvases: Sequence[int], threads: int, repeat: int) -> dict[str, Any]:
    """Seconds and bytes of a file or a checkpoint, or of random weights in PyTorch, in this process."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    model = load_model(source, canvas=max(canvases)) if source else in_torch()
    assert isinstance(model, MaskedModel)
    found: dict[str, Any] = {"load": time.perf_counter() - started}
    for canvas in canvases:
        ids = torch.full((1, canvas), model.mask_id)
        batch, times = model.batch([[5] * PROMPT], canvas), []
        for _ in range(repeat + 1):
            started = time.perf_counter()
            model.logits(batch, ids, ids == model.mask_id)
            times.append(time.perf_counter() - started)
        found[f"canvas {canvas}"] = statistics.median(times[1:])  # the first one reads the weights
    return found | resident_memory() | {"peak": peak_rss_bytes()}


@dataclass(frozen=True)
class FullGgufOptions:
    """A random GGUF file of Dream-7B's shape, in Q8_0, and its cost."""

    folder: Path = option(None, "where the files go; they are kept", flags=("folder",))
    model: str | None = option(None, "a checkpoint in place of Dream-7B's shape, as testbed")
    canvas: tuple[int, ...] = option((64, 128, 256), "positions")
    threads: int = option(2, "of the processor")
    repeat: int = option(3, "passes, of which the median counts")


def sources(model: str | None, folder: Path) -> dict[str, str | None]:
    """What is measured, by name; PyTorch first."""
    if model:
        files = {f"llama.cpp, {kind}": str(made(model, kind, folder)) for kind in ("F32", "Q8_0")}
        return {"PyTorch, float32": model, **files}
    path = folder / "dream-7b-random-q8_0.gguf"
    if not path.is_file():
        part = path.with_suffix(".part")
        write_random(folder, part)
        part.rename(path)
    return {"PyTorch, bfloat16": None, "llama.cpp, Q8_0": str(path)}


def run(options: FullGgufOptions) -> None:
    threads, rows, plain = options.threads, [], dict[str, Any]()
    heads = [f"canvas {canvas}" for canvas in options.canvas]
    for name, source in sources(options.model, options.folder).items():
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            cost = pool.submit(measure, source, options.canvas, threads, options.repeat).result()
        plain = plain or cost
        held = (cost["anonymous"] + cost["file-backed"]) / 1e9
        row = {"": name, "load s": f"{cost['load']:.1f}"}
        row["resident GB (anonymous)"] = f"{held:.2f} ({cost['anonymous'] / 1e9:.2f})"
        row["peak GB"] = f"{cost['peak'] / 1e9:.2f}"
        row |= {f"s, {head}": f"{cost[head]:.3g} ({cost[head] / plain[head]:.2f})" for head in heads}
        took = STEPS * cost[heads[0]] * threads
        row |= {f"{STEPS} passes of {heads[0]}, s on {n} cores": f"{took / n:.3g}" for n in CORES}
        rows.append(row)
    print(markdown(pd.DataFrame(rows)))


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("lab.benches.full_gguf", run, FullGgufOptions, argv, __doc__)


if __name__ == "__main__":
    sys.exit(main())
