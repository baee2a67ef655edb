"""Accepted lengths: tokens of an answer for each pass of the target, with the drafts of a block drafter.

Under greedy acceptance the text is the target's whatever is drafted, so the passes of decoding follow from
the drafts at every place of the answer, which one pass of the drafter gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import Qwen2ForCausalLM

from edge_runtime.engine.base import common_prefix
from lab.drafting.answers import Target, TargetAnswer
from lab.drafting.block_model import block_logits

PLACES = 64
"""Most blocks of one pass; they bound its memory."""


def pass_lengths(drafts: Sequence[Sequence[int]], answer: Sequence[int]) -> list[int]:
    """Tokens that each pass of the target yields: those accepted of the draft and the target's own after.

    drafts: what is drafted after the first s tokens of the answer, for each s from 0.
    """
    lengths = []
    at = 0
    while at < len(answer):
        accepted = common_prefix(drafts[at], answer[at:])
        lengths.append(min(accepted + 1, len(answer) - at))
        at += lengths[-1]
    return lengths


@torch.inference_mode()
def drafts_everywhere(net: Qwen2ForCausalLM, item: TargetAnswer, target: Target) -> list[list[int]]:
    """The drafts after each prefix of an answer."""
    text = torch.tensor([[*item.prompt, *item.answer]], device=net.device)
    states = target.states(text)
    places = torch.arange(len(item.answer), device=net.device)[None] + len(item.prompt)
    found: list[list[int]] = []
    for starts in torch.split(places, PLACES, 1):
        logits = block_logits(net, target.form, text, starts, states)
        logits[..., target.form.mask] = -torch.inf
        found += logits[0].argmax(-1).tolist()
    return found


def tokens_a_pass(net: Qwen2ForCausalLM, item: TargetAnswer, target: Target) -> float:
    """The mean accepted length of an answer, the target's own token counted."""
    return len(item.answer) / len(pass_lengths(drafts_everywhere(net, item, target), item.answer))
