"""Accepted lengths: tokens of an answer for each pass of the target, with the drafts of a block drafter.

Responsible for walking along the target's own greedy answers. Under greedy acceptance the text is the
target's own whatever is drafted, so the passes of decoding follow from the drafts at every place of the
answer, which one pass of the drafter gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import Qwen2ForCausalLM

from edge_runtime.decode.forced import common_prefix
from lab.drafting.answers import Target, TargetAnswer
from lab.drafting.block_model import BlockForm, block_logits

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
def drafts_everywhere(
    net: Qwen2ForCausalLM, form: BlockForm, item: TargetAnswer, target: Target
) -> list[list[int]]:
    """The drafts after each prefix of an answer."""
    text = torch.tensor([[*item.prompt, *item.answer]], device=net.device)
    states = target_states(target, text)
    places = torch.arange(len(item.answer), device=net.device)[None] + len(item.prompt)
    found: list[list[int]] = []
    for starts in torch.split(places, PLACES, 1):
        logits = block_logits(net, form, text, starts, states)
        logits[..., form.mask] = -torch.inf
        found += logits[0].argmax(-1).tolist()
    return found


@torch.inference_mode()
def target_states(target: Target, text: torch.Tensor) -> torch.Tensor:
    """The target's hidden states after its last layer and norm, float [B, L, H]."""
    states: torch.Tensor = target.net.model(input_ids=text.to(target.net.device)).last_hidden_state
    return states.to(text.device)


def tokens_a_pass(
    net: Qwen2ForCausalLM, form: BlockForm, items: Sequence[TargetAnswer], target: Target
) -> list[float]:
    """The mean accepted length of each answer, the target's own token counted."""
    found = []
    for item in items:
        lengths = pass_lengths(drafts_everywhere(net, form, item, target), item.answer)
        found.append(sum(lengths) / len(lengths))
    return found
