"""A diffusion checkpoint of Dream-7B's exact shape with random weights, in the layout of the hub.

Responsible for config.json, tokenizer, index and shards. Not responsible for what is measured on it.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from cloud_anchor.model.families import DREAM_7B, Shape
from lab.benches.random_checkpoint import write_random_checkpoint
from tests.cloud_anchor.cloud_checkpoints import as_dream

SHARDS = 4


def write_random_dream(folder: Path, shape: Shape = DREAM_7B, *, tokenizer: str | None = None) -> Path:
    """Writes the checkpoint in bfloat16, in 4 shards with their index; returns its folder.

    tokenizer: text of Qwen2.5's published tokenizer.json, without it a small one.
    """
    sizes_of = {name: size for name, size in vars(shape).items() if size is not None}
    as_dream(write_random_checkpoint(folder, "tiny", tokenizer=tokenizer, **sizes_of))
    whole = folder / "model.safetensors"
    places: dict[str, str] = {}
    with safe_open(whole, "pt") as file:
        sizes = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118
        total, before = sum(sizes.values()), 0
        shards: list[list[str]] = [[] for _ in range(SHARDS)]
        for name, size in sizes.items():
            shards[before * SHARDS // total].append(name)
            before += size
        for number, names in enumerate(shards, 1):
            place = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
            save_file({name: file.get_tensor(name) for name in names}, folder / place, {"format": "pt"})
            places |= dict.fromkeys(names, place)
    whole.unlink()
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    return folder
