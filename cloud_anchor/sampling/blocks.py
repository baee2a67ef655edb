"""Blocks: a canvas that is written in parts, from left to right (semi-autoregressive decoding).

Responsible for the positions that may commit in a step, and for the schedule's share within a block. Not
responsible for which of them commit (see `commits`). A canvas without blocks is one block.

The quota of a schedule gives every block its part of the planned steps (LLaDA, arXiv 2502.09992). Any other
rule opens a block where enough of the one before it is committed: all of it (Fast-dLLM, arXiv 2505.22618), or
a part, and several are then written side by side (d3LLM, arXiv 2601.07568).
"""

from __future__ import annotations

import torch
from torch import Tensor

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.schedules import SCHEDULES


def opened(config: DenoiseConfig, steps: list[int], before: list[int], masked: Tensor) -> list[int]:
    """Blocks that are open in the next step of each row, counted from the left.

    steps: run so far. before: open in the last step, 0 before the first. masked: bool [B, C].
    """
    if config.rule == "quota":
        return [_block_at(config, step) + 1 for step in steps]
    size = config.block
    found = []
    for row, count in enumerate(before):
        start = (count - 1) * size
        left = float(masked[row, start : start + size].float().mean()) if count else 0.0
        found.append(min(count + (1 - left >= config.block_add), config.blocks))
    return found


def open_positions(config: DenoiseConfig, steps: list[int], count: list[int], masked: Tensor) -> Tensor:
    """The masked positions of the open blocks, bool [B, C]; all of them in the last planned step."""
    last = config.total_steps - 1
    ends = [config.canvas if step == last else n * config.block for step, n in zip(steps, count, strict=True)]
    places = torch.arange(masked.shape[1], device=masked.device)
    return masked & (places < torch.tensor(ends, device=masked.device)[:, None])


def shares(config: DenoiseConfig, steps: list[int]) -> Tensor:
    """The schedule's share of the open positions that commits in the next step of each row, float32 [B].

    Within its block where the quota rules, else of the whole run.
    """
    if config.rule != "quota" or config.blocks == 1:
        return SCHEDULES[config.schedule](config.total_steps)[torch.tensor(steps)]
    found = []
    for step in steps:
        block = _block_at(config, step)
        first, behind = _first_step(config, block), _first_step(config, block + 1)
        found.append(SCHEDULES[config.schedule](behind - first)[step - first])
    return torch.stack(found)


def _block_at(config: DenoiseConfig, step: int) -> int:
    return step * config.blocks // config.total_steps


def _first_step(config: DenoiseConfig, block: int) -> int:
    return -(-block * config.total_steps // config.blocks)
