"""Low-rank adapters (LoRA, arXiv 2106.09685) on a loaded model, and their sum with a checkpoint's weights.

Responsible for which weights have one and for the merged checkpoint folder. Not responsible for training (see
`adapter_run`). Adapters are float32 whatever the format of the weights under them, which stay as they are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import HUB_FILES, WEIGHTS, weight_files
from common.cli import required

with required("lab", "lora"):
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.lora import Linear

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer that have an adapter: all, as in dParallel (arXiv 2509.26488)."""
COPIED = (*(pattern for pattern in HUB_FILES if pattern != WEIGHTS), "*.py")
"""Files beside the weights; a repository's own code is for those who open the checkpoint with it."""


def insert(net: torch.nn.Module, rank: int) -> dict[str, torch.nn.Parameter]:
    """Puts adapters into a model, in place; returns their weights by name, which alone are to be trained.

    They change nothing until they are trained. The scale is 1, as in dParallel.
    """
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=list(PROJECTIONS))
    inject_adapter_in_model(config, net)
    weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    for weight in weights.values():
        weight.data = weight.data.float()
    return weights


def check_source(folder: Path, rename: Callable[[str], str]) -> None:
    """Raises CheckpointError where adapters cannot be added to a checkpoint's weights as they are stored."""
    for path in weight_files(folder):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no dictionary)
                kind = file.get_slice(name).get_dtype()
                if _adapted(rename(name)) and kind not in ("BF16", "F16", "F32"):
                    raise CheckpointError(
                        f"{path}: tensor {name!r}: expected BF16, F16 or F32, found {kind}. Adapters are "
                        "merged into the weights as they are stored: give a checkpoint that is not quantised."
                    )


def _adapted(module: str) -> bool:
    return module.endswith(tuple(f".{projection}.weight" for projection in PROJECTIONS))


@torch.no_grad()
def merge(
    net: torch.nn.Module,
    source: Path,
    folder: Path,
    rename: Callable[[str], str],
    *,
    share: float = 1.0,
    stated: Mapping[str, Any] | None = None,
) -> None:
    """Writes a checkpoint folder like `source`, with the adapters of `net` added to its weights.

    The weight files are copies in which the adapted tensors are overwritten one at a time: memory holds one
    tensor, and all else is equal bit for bit. rename: the module's name from a tensor's. share: of the
    adapters; less keeps some of the untaught weights. stated: in generation_config.json, beside what the
    source states. The folder is replaced as a whole: an interruption leaves the old one or the new one.
    """
    layers = {f"{name}.weight": layer for name, layer in net.named_modules() if isinstance(layer, Linear)}
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file in chain.from_iterable(source.glob(pattern) for pattern in COPIED):
        shutil.copyfile(file, fresh / file.name)
    if stated:
        path = fresh / "generation_config.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(before | dict(stated), indent=2) + "\n", encoding="utf-8")

    def added(name: str, weight: torch.Tensor) -> torch.Tensor | None:
        layer = layers.get(rename(name))
        if layer is None:
            return None
        change: torch.Tensor = share * layer.get_delta_weight("default").cpu()
        return (weight.float() + change).to(weight.dtype)

    for path in weight_files(source):
        shutil.copyfile(path, fresh / path.name)
        _overwrite(fresh / path.name, added)
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)


def _overwrite(path: Path, change: Callable[[str, torch.Tensor], torch.Tensor | None]) -> None:
    """Replaces tensors of a safetensors file in place by what `change` makes of them; None leaves one alone.

    The header, its length before it, states where each tensor lies behind both.
    """
    with path.open("r+b") as out:
        size = int.from_bytes(out.read(8), "little")
        header = json.loads(out.read(size))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            with safe_open(path, "pt") as file:
                changed = change(name, file.get_tensor(name))
            if changed is not None:
                out.seek(8 + size + entry["data_offsets"][0])
                out.write(changed.contiguous().flatten().view(torch.uint8).numpy().data)
