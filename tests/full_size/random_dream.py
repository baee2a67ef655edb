"""python -m tests.full_size.random_dream FOLDER: a diffusion checkpoint of Dream-7B's exact shape with random
weights, in the layout of the hub.

Responsible for config.json, tokenizer, index and shards. Not responsible for what is measured on it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from cloud_anchor.model.families import DREAM_7B, Shape
from common.cli import run_command
from common.progress import Bars
from convert.source.checkpoint import shape_of
from lab.benches.random_checkpoint import read_tokenizer, write_tokenizer

MASK = "<|mask|>"
SHARDS = 4
_NOISE = 16_777_213
"""Numbers that are drawn; they are repeated through all tensors. A prime, so that no two rows are equal."""


def write_random_dream(
    folder: Path,
    shape: Shape = DREAM_7B,
    *,
    tokenizer: str | None = None,
    step: Callable[[int], None] = lambda bytes_: None,
) -> Path:
    """Writes the checkpoint in bfloat16, in 4 shards with their index; returns its folder.

    tokenizer: text of Qwen2.5's published tokenizer.json, without it a small one. step: called with the bytes
    of each shard.
    """
    write_tokenizer(folder)
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ordinary = len(data["model"]["vocab"])
    mask = max(token["id"] for token in data["added_tokens"]) + 1
    data["added_tokens"].append(data["added_tokens"][-1] | {"id": mask, "content": MASK, "special": True})
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    config = vars(shape) | {
        "architectures": ["DreamModel"],
        "model_type": "Dream",
        "hidden_act": "silu",
        "rope_scaling": None,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": ordinary,
        "eos_token_id": ordinary,
        "pad_token_id": ordinary,
        "mask_token_id": mask,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    draw = _noise()
    most = -(-2 * shape.parameters // SHARDS)
    tensors: dict[str, Tensor] = {}
    weight_map: dict[str, str] = {}
    size = total = shard = 0

    def write() -> None:
        nonlocal tensors, size, total, shard
        shard += 1
        name = f"model-{shard:05d}-of-{SHARDS:05d}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, name))
        step(size)
        total += size
        tensors, size = {}, 0

    # A Dream has the tensors of a Qwen2.
    qwen = shape_of(config | {"architectures": ["Qwen2ForCausalLM"]}, str(folder))
    for name, sizes in qwen.tensor_shapes().items():
        value = draw(sizes)
        tensors[name] = value + 1 if "norm" in name else value
        size += value.nbytes
        if total + size >= most * (shard + 1) and shard < SHARDS - 1:
            write()
    write()
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    return folder


def _noise() -> Callable[[tuple[int, ...]], Tensor]:
    """A source of random tensors of standard deviation 0.02."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.empty(_NOISE, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
    used = 0

    def draw(sizes: tuple[int, ...]) -> Tensor:
        nonlocal used
        result = torch.empty(sizes, dtype=torch.bfloat16)
        flat, start = result.view(-1), 0
        while start < len(flat):
            count = min(len(flat) - start, _NOISE - used)
            flat[start : start + count] = numbers[used : used + count]
            used = (used + count) % _NOISE
            start += count
        return result

    return draw


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.full_size.random_dream", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="a published tokenizer.json, or .json.gz"
    )
    args = parser.parse_args(argv)

    def write() -> int:
        text = read_tokenizer(args.tokenizer) if args.tokenizer else None
        with Bars().stage(f"writing {SHARDS} shards", 2 * DREAM_7B.parameters) as step:
            write_random_dream(args.folder, tokenizer=text, step=step)
        return 0

    return run_command("random_dream", write)


if __name__ == "__main__":
    sys.exit(main())
