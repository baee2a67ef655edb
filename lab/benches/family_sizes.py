"""`python -m lab.benches.family_sizes -o FOLDER`: what each family takes at its published size.

Responsible for the arithmetic and the published sizes: nothing is loaded, nothing is timed. The memory is
that of the preflight (`cloud_anchor.model.memory`) for one answer in bfloat16. Not responsible for what a
model is worth.

A step takes the longer of its arithmetic, 2 operations a weight and position at EFFICIENCY of the peak, and
of reading the weights once. EFFICIENCY is what the paper's one timing gives: Dream-7B, 42 ms a step on an
A100, 300 positions. Caches are left out: they are under 0.2 GiB here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from cloud_anchor.model.diffusion_gemma import GemmaSizes
from cloud_anchor.model.families import DREAM_7B, Shape
from cloud_anchor.model.memory import Load, MemoryNeeds, Sizes
from common.cli import CommandParser, run_command
from lab.report import write_tables
from lab.store import Store
from lab.tables import Row, Table

TITLE = "Families at their published sizes"
GIB = 1 << 30
PROMPT, CANVAS = 44, 256
EFFICIENCY = 0.35


class Machine(NamedTuple):
    """gib: of free memory. teraflops, of dense bfloat16, and terabytes read, in a second, as stated."""

    name: str
    gib: float
    teraflops: float
    terabytes: float


MACHINES = (
    Machine("RTX 4090, 24 GB", 22.0, 165, 1.01),
    Machine("L40S, 48 GB", 44.0, 362, 0.86),
    Machine("A100, 80 GB", 74.0, 312, 2.04),
    Machine("H200, 141 GB", 131.0, 989, 4.80),
)
"""The smallest first."""

DIFFUSION_GEMMA_26B = {
    "text_config": {
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "sliding_window": 1024,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
    }
}
"""Gemma 4 26B-A4B's, of which DiffusionGemma 26B-A4B is made; not confirmed by its configuration file."""


@dataclass(frozen=True)
class Published:
    """A model at its published size. active: weights that a position uses; None: all.
    positions: that a step runs, those in its cache not counted.
    """

    name: str
    sizes: Sizes
    positions: int
    active: int | None = None

    def row(self) -> Row:
        """The table's row."""
        needs = MemoryNeeds.of(self.sizes, torch.bfloat16, Load(1, CANVAS), None)
        gib = needs.total / GIB
        machine = next((each for each in MACHINES if each.gib >= gib), MACHINES[-1])
        compute = 2 * (self.active or self.sizes.parameters) * self.positions
        compute_ms = 1e3 * compute / (machine.teraflops * 1e12 * EFFICIENCY)
        reading_ms = 1e3 * needs.weights / (machine.terabytes * 1e12)
        return {
            "model": self.name,
            "10^9 weights": round(self.sizes.parameters / 1e9, 2),
            "used by a position": round((self.active or self.sizes.parameters) / 1e9, 2),
            "GiB of weights": round(needs.weights / GIB, 1),
            "GiB of a step": round(needs.step / GIB, 1),
            "GiB in all": round(gib, 1),
            "machine": machine.name,
            "positions": self.positions,
            "ms per step": round(max(compute_ms, reading_ms), 1),
            "bound by": "arithmetic" if compute_ms > reading_ms else "reading",
        }


def published() -> list[Published]:
    """Each family; raises CheckpointError where the installed transformers lacks DiffusionGemma."""
    gemma = GemmaSizes.of(DIFFUSION_GEMMA_26B, "DiffusionGemma 26B-A4B")
    whole = PROMPT + CANVAS
    llada = Shape(126_464, 4096, 12_288, 32, 32, 32, 4096, 1e-5, 5e5, False)
    qwen = Shape(151_936, 1536, 8960, 28, 12, 2, 32_768, 1e-6, 1e6, True)
    sdar_small = Shape(151_936, 2048, 6144, 28, 16, 8, 32_768, 1e-6, 1e6, True, 128)
    sdar = Shape(151_936, 4096, 12_288, 36, 32, 8, 32_768, 1e-6, 1e6, False, 128)
    return [
        Published("Dream 7B", DREAM_7B, whole),
        Published("LLaDA 8B", llada, whole),
        Published("Fast-dLLM v2 1.5B", qwen, 32),
        Published("Fast-dLLM v2 7B", DREAM_7B, 32),
        Published("SDAR 1.7B", sdar_small, 4),
        Published("SDAR 8B", sdar, 4),
        Published("DiffusionGemma 26B-A4B", gemma, CANVAS, gemma.active),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="python -m lab.benches.family_sizes", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="for tables.json")
    args = parser.parse_args(argv)

    def run() -> None:
        rows = [each.row() for each in published()]
        note = f"One answer of {CANVAS} positions behind a prompt of {PROMPT} tokens, bfloat16."
        about = ["python -m lab.benches.family_sizes: computed from the models' shapes, nothing was timed."]
        store = Store(args.out, {"bench": "family_sizes"})
        write_tables(store, TITLE, about, [Table.of("sizes", TITLE, rows, note)])

    return run_command("family_sizes", run)


if __name__ == "__main__":
    sys.exit(main())
