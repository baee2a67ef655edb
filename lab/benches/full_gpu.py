"""python -m lab.benches.full_gpu: a tenth of Dream-7B's steps on a GPU, in bfloat16.

Random weights of its shape in the GPU's memory (15 GB), prompts of 64 tokens, 13 of 128 steps, with the
published options (entropy, temperature 0.2, top-p 0.95) and with our default (confidence, temperature 0).
Prints, for each canvas and batch, milliseconds a step, answers a second, the share of the device's own matrix
speed, and peak memory, beside the plain sampler, one prompt at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import torch

from cloud_anchor.errors import require
from cloud_anchor.model.checkpoint import build_net
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.families import DREAM_7B, FAMILIES
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from common.cli import option, run_options
from lab.benches.sampler import best_of, plain
from lab.tables import Row, markdown

PROMPT, MASK, END, STEPS, TOTAL, SQUARE = 64, 151_666, 151_643, 13, 128, 8192


def _random_dream(device: torch.device) -> DreamModel:
    net = build_net(DREAM_7B, device, torch.bfloat16)
    state = {name: torch.empty(v.shape, dtype=v.dtype, device=device) for name, v in net.named_parameters()}
    for value in state.values():
        value.fill_(1) if value.ndim == 1 else value.normal_(0, 0.02)
    net.load_state_dict(state, assign=True)
    return DreamModel(net.requires_grad_(False), FAMILIES["Dream"], MASK, frozenset({END}), "random")


def _matrix_speed(device: torch.device) -> float:
    """Operations a second of a product of large bfloat16 matrices."""
    left, right = (torch.randn(SQUARE, SQUARE, dtype=torch.bfloat16, device=device) for _ in range(2))
    _, seconds = best_of(3, device, lambda: [left @ right for _ in range(10)][-1])
    return 10 * 2 * SQUARE**3 / seconds


def operations(batch: int, canvas: int) -> float:
    """Of one pass without attention's own products; the projection to the vocabulary on all of the canvas."""
    table = DREAM_7B.vocab_size * DREAM_7B.hidden_size
    return 2.0 * batch * ((DREAM_7B.parameters - 2 * table) * (PROMPT + canvas) + table * canvas)


@dataclass(frozen=True)
class FullGpuOptions:
    """A tenth of Dream-7B's steps on a GPU, in bfloat16."""

    canvas: tuple[int, ...] = option((256, 512), "positions")
    batch: tuple[int, ...] = option((1, 8, 32, 128), "answers at once")


def run(options: FullGpuOptions) -> None:
    require("device", torch.cuda.is_available(), "a GPU that PyTorch reaches", "none")
    speed, model = _matrix_speed(device := torch.device("cuda")), _random_dream(device)
    print(f"{torch.cuda.get_device_name()}, products of {SQUARE}² matrices: {speed / 1e12:.0f} TFLOP/s\n")
    rows: list[Row] = []

    def measure(sampler: str, canvas: int, batch: int, work: Callable[[], object]) -> None:
        row: Row = {"canvas": canvas, "sampler": sampler, "batch": batch}
        try:
            work()
            torch.cuda.reset_peak_memory_stats()
            _, seconds = best_of(2, device, work)
        except torch.OutOfMemoryError:
            rows.append(row | {"ms a step": "out of memory"})
            return
        row["ms a step"] = f"{1000 * seconds / STEPS:.1f}"
        row[f"ms for {STEPS}"] = f"{1000 * seconds:.0f}"
        row["answers/s"] = f"{batch / seconds:.2f}"
        row["of the matrix speed"] = f"{STEPS * operations(batch, canvas) / seconds / speed:.2f}"
        row["peak GB"] = f"{torch.cuda.max_memory_allocated() / 1e9:.1f}"
        rows.append(row)

    prompts = [[token + row for token in range(PROMPT)] for row in range(max(options.batch))]
    for canvas in options.canvas:
        default = DenoiseConfig(canvas, TOTAL, STEPS, commit="quota")
        published = replace(default, order="entropy", temperature=0.2, top_p=0.95)
        measure("plain, published options", canvas, 1, partial(plain, model, prompts[0], published))
        for name, config in (("published options", published), ("our default", default)):
            for batch in options.batch:
                measure(name, canvas, batch, partial(denoise, model, prompts[:batch], config))
                torch.cuda.empty_cache()
    print(markdown(pd.DataFrame(rows).fillna("")))


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("lab.benches.full_gpu", run, FullGpuOptions, argv, __doc__)


if __name__ == "__main__":
    sys.exit(main())
