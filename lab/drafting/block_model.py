"""The model of a block drafter: Qwen2's layers over a text and the blocks drafted after it.

Responsible for the rows of blocks, their attention and their logits, for many places of a text in one pass.
Not responsible for losses or training.

As in DFlash (arXiv 2602.06036) a block is the last known token and K - 1 masks, which see each other and the
text before them; the text's own rows are causal, so that their keys and values can be kept. As in Dream the
logits are shifted: row i predicts the token after it. The hidden states of the target's last layer are
projected and added to the embeddings of the text's tokens; the last known token, which the target has not run
yet, has none.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

STATES = "target_states"
"""Name of the projection of the target's hidden states."""


class BlockForm(NamedTuple):
    """The form of a block drafter: the tokens that it writes in one pass, and the id of its mask token."""

    block: int
    mask: int


def build_drafter(target: Qwen2ForCausalLM, layers: int) -> Qwen2ForCausalLM:
    """A drafter of so many of the target's layers, with its embedding, head, last norm and first layers.

    DFlash's drafter shares the target's embedding and head; here they are where training begins.
    """
    config = Qwen2Config(**target.config.to_dict() | {"num_hidden_layers": layers, "layer_types": None})
    config._attn_implementation = "eager"
    net = Qwen2ForCausalLM(config)
    known = net.state_dict()
    net.load_state_dict({name: value for name, value in target.state_dict().items() if name in known})
    projection = torch.nn.Linear(config.hidden_size, config.hidden_size, bias=False)
    torch.nn.init.zeros_(projection.weight)
    net.add_module(STATES, projection)
    return net


def block_logits(
    net: Qwen2ForCausalLM, form: BlockForm, text: Tensor, starts: Tensor, states: Tensor
) -> Tensor:
    """The drafts at many places of texts: float [B, N, K, V].

    text: int64 [B, L], padded on the right. starts: int64 [B, N], the positions of the first drafted tokens,
    from 1; the draft of a place depends on the tokens before it alone. states: float [B, L, H], the target's
    hidden states.
    """
    rows, length = text.shape
    count, block = starts.shape[1], form.block
    device = text.device
    masks = torch.full((rows, count, block), form.mask, device=device)
    masks[..., 0] = text.gather(1, starts - 1)
    within = torch.arange(block, device=device)
    at = torch.arange(length, device=device)
    positions = torch.cat([at.expand(rows, -1), (starts[..., None] - 1 + within).flatten(1)], 1)
    embedded = net.model.embed_tokens(torch.cat([text, masks.flatten(1)], 1))
    projection = getattr(net, STATES)
    added = projection(states.to(projection.weight.dtype))
    embedded = torch.cat([embedded[:, :length] + added, embedded[:, length:]], 1)
    hidden = net.model(
        inputs_embeds=embedded,
        position_ids=positions,
        attention_mask={"full_attention": _attention(starts, length, block)},
        use_cache=False,
    ).last_hidden_state[:, length:]
    logits: Tensor = net.lm_head(hidden)
    return logits.view(rows, count, block, -1)


def _attention(starts: Tensor, length: int, block: int) -> Tensor:
    """Additive mask [B, 1, T, T] of `length` rows of text and N blocks after them."""
    rows, count = starts.shape
    at = torch.arange(length, device=starts.device)
    of_block = torch.arange(count, device=starts.device).repeat_interleave(block)
    # The last known token is in the block; the text's own row of it is not seen twice.
    before = at < (starts - 1).repeat_interleave(block, 1)[..., None]
    same = (of_block[:, None] == of_block).expand(rows, -1, -1)
    causal = (at[:, None] >= at).expand(rows, -1, -1)
    hidden = torch.zeros(rows, length, count * block, dtype=torch.bool, device=starts.device)
    seen = torch.cat([torch.cat([causal, hidden], 2), torch.cat([before, same], 2)], 1)
    return torch.zeros(seen.shape, device=starts.device).masked_fill(~seen, float("-inf"))[:, None]
