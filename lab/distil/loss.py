"""The parts of the loss that every student has: certainty, and a device's surprise as weights.

Responsible for these and for opening the device's model. Not responsible for what is masked (see `states`)
or for the loop.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen2ForCausalLM

from cloud_anchor.model.checkpoint import find_checkpoint
from cloud_anchor.model.row_weights import open_qwen2

TEMPERATURE = 0.5
"""Of the distribution whose entropy is a loss: as in dParallel."""
FLOOR = 0.25
"""Weight of a token that the edge model is sure to write by itself."""


def uncertainty(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighed entropy, in nats, of the positions whose best token is the right one already, summed up.

    logits: float32 [N, V]. targets, weights: [N]. dParallel's certainty forcing (arXiv 2509.26488).
    """
    right = logits.argmax(-1) == targets
    sharp = (logits[right] / TEMPERATURE).log_softmax(-1)
    return (-(sharp.exp() * sharp).sum(-1) * weights[right]).sum()


def open_edge(name: str | None, device: str) -> Qwen2ForCausalLM | None:
    """An edge model for training beside; raises CheckpointError."""
    return open_qwen2(find_checkpoint(name)).to(device).float().eval() if name else None


@torch.no_grad()
def surprise(edge: Qwen2ForCausalLM, ids: Tensor) -> Tensor:
    """Float32 [B, L], the weight of each token of `ids` [B, L]: 1 where the edge model would never write it,
    given the text so far.
    """
    logits = edge(input_ids=ids).logits[:, :-1]
    lost = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none")
    weight = FLOOR + (1 - FLOOR) * (1 - (-lost).exp().view(ids[:, 1:].shape))
    return F.pad(weight, (1, 0), value=1.0)
