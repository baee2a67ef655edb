"""Weights in eight bits: each row of a matrix as integers and one scale.

    NAME             int8[rows, columns], from -127 to 127
    NAME.row_scale   float32[rows, 1]

Tensors of other dimensions stay as they are. Half the size of bfloat16, for a checkpoint that is shipped; the
model computes with the restored weights. Responsible for writing the form and for opening such a Qwen2
checkpoint (diffusion models: see `cloud_anchor.model.checkpoint`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from cloud_anchor.model.checkpoint import SCALE, tensors_of

FILE = "model.safetensors"


def rounded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with its matrices in eight bits, rounded to nearest; a row of zeros has the scale 1."""
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if value.ndim != 2:
            found[name] = value
            continue
        rows = value.float()
        scale = rows.abs().amax(1, keepdim=True) / 127
        scale = torch.where(scale > 0, scale, 1.0)
        found[name] = (rows / scale).round().to(torch.int8)
        found[name + SCALE] = scale
    return found


def in_rows(folder: Path) -> bool:
    """True where a checkpoint's weights have this form."""
    if not (folder / FILE).is_file():
        return False
    with safe_open(folder / FILE, "pt") as file:
        return any(name.endswith(SCALE) for name in file.keys())  # noqa: SIM118 (it is no dictionary)


def round_checkpoint(folder: Path) -> None:
    """Put the weights of a checkpoint folder into this form, in place."""
    save_file(rounded(load_file(folder / FILE)), folder / FILE, metadata={"format": "pt"})


def open_qwen2(folder: Path, **options: Any) -> Qwen2ForCausalLM:
    """A Qwen2 checkpoint in this form or in an ordinary one; options, and errors, of `from_pretrained`."""
    if not in_rows(folder):
        return Qwen2ForCausalLM.from_pretrained(folder, **options)
    config, state = Qwen2Config.from_pretrained(folder), dict(tensors_of(folder / FILE, torch.device("cpu")))
    net = Qwen2ForCausalLM.from_pretrained(None, config=config, state_dict=state, **options)
    if (folder / "generation_config.json").is_file():
        net.generation_config = GenerationConfig.from_pretrained(folder)
    return net
