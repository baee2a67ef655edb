"""Cases on which block diffusion is compared with the published code; see `make_block_vectors`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.cloud_anchor.cloud_checkpoints import make_block_model

VOCABULARY, MASK, END = 300, 303, 302
COUNT = 50


@dataclass(frozen=True)
class Case:
    """A prompt, and the options of both samplers. threshold: that commits one to several tokens a step."""

    prompt: list[int]
    canvas: int
    block: int
    sub_block: int
    threshold: float
    mask: int = MASK
    end: int = END


def cases(kind: str) -> list[Case]:
    """50 prompts of 1 to 70 tokens.

    None is as long as one block of 32: published Fast-dLLM v2 then runs the first block without the prompt.
    """
    draw = random.Random(f"{kind} prompts")
    lengths = [length for length in range(1, 71) if length != 32]
    sizes = (24, 4, 4) if kind == "sdar" else (40, 32, 8)
    return [
        Case([draw.randrange(VOCABULARY) for _ in range(draw.choice(lengths))], *sizes, 0.1)
        for _ in range(COUNT)
    ]


def write_model(folder: Path, kind: str) -> Path:
    """Random weights that never predict the mask: the published code would wait for ever."""
    from safetensors.torch import load_file, save_file

    make_block_model(folder, kind, seed=7)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][MASK] = 0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
