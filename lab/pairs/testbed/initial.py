"""Weights from which copying is learned in a hundred steps: heads that look back, and induction heads.

Responsible for the first weights of the testbed's models. Not responsible for their shapes or training.

An induction head finds an earlier place like this one and says what came next (Olsson et al., *In-context
Learning and Induction Heads*, arXiv 2209.11895). It takes two layers that have to be found together, which
random weights of this size need tens of millions of tokens for. Both layers are set here instead, in the
manner of mimetic initialisation (Trockman and Kolter, arXiv 2305.09828), and trained like all others:

- in the first layer, head n attends to the token n back: the biases of queries and keys are vectors that
  rotary position encoding turns onto each other at exactly that distance;
- in the second layer, one head looks for the place whose token before is this token, another one for the
  place whose token two back is the token before, and both read the token there. They find it a few times
  more often than any other place, which is enough for the gradient to do the rest;
- the head of the vocabulary starts as the embedding, so that a token read is the token written.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

DISTANCES = (1, 2)
"""Distances of the heads that look back."""

_EMBEDDING = 0.3
"""Standard deviation of an embedding's entries."""
_SAY = 0.1
"""Scale of the vocabulary's head against the embedding."""
_WRITE = 0.15
"""Scale of what a head writes: about a quarter of the embedding's length."""
_MATCH = 1.75
"""Scale of the induction heads' queries and keys."""
_PLACE = 5.0
"""Length of the biases at one frequency: the place looked for is ahead of its neighbours by some 3 nats."""
_FREQUENCIES = 12
"""Frequencies with biases, the highest ones: the others hardly turn from a token to the next."""
_QUIET = 0.1
"""Scale of the random weights beside those biases."""


@torch.no_grad()
def set_weights(model: Qwen2ForCausalLM) -> None:
    """Set embedding, vocabulary's head, and `len(DISTANCES)` heads in each of the first two layers.

    Random parts come from torch's generator. Every query head has a key head.
    """
    config = model.config
    size = int(config.hidden_size)
    width = size // int(config.num_attention_heads)
    embedding = model.model.embed_tokens.weight
    embedding.normal_(std=_EMBEDDING)
    if not config.tie_word_embeddings:
        model.lm_head.weight.copy_(embedding * _SAY)
    # Subspaces of the residual stream: what is read of a token, and where each look back writes it.
    token, said = _directions(size)[:width], _directions(size)[:width]
    written = _directions(size)
    earlier = [written[n * width : (n + 1) * width] for n in range(len(DISTANCES))]
    _look_back(model, token, earlier)
    matches = [(token, earlier[0]), *pairwise(earlier)]
    attention = model.model.layers[1].self_attn
    for head, (query, key) in enumerate(matches):
        at = slice(head * width, (head + 1) * width)
        attention.q_proj.weight[at] = query * _MATCH
        attention.k_proj.weight[at] = key * _MATCH
        attention.v_proj.weight[at] = said
        attention.o_proj.weight[:, at] = said.T * _WRITE


def _directions(size: int) -> Tensor:
    """Random orthonormal rows, float32[size, size]."""
    rows: Tensor = torch.linalg.qr(torch.randn(size, size))[0]
    return rows


def _look_back(model: Qwen2ForCausalLM, token: Tensor, written: list[Tensor]) -> None:
    """Heads of the first layer that write the tokens at `DISTANCES` into these subspaces."""
    width = token.shape[0]
    half = width // 2
    turns = model.model.rotary_emb.inv_freq  # radians a position
    length = torch.zeros(half)
    length[:_FREQUENCIES] = _PLACE
    attention = model.model.layers[0].self_attn
    for head, (distance, place) in enumerate(zip(DISTANCES, written, strict=True)):
        at = slice(head * width, (head + 1) * width)
        turned = distance * turns
        attention.q_proj.bias[at] = torch.cat([length, torch.zeros(half)])
        attention.k_proj.bias[at] = torch.cat([length * turned.cos(), length * turned.sin()])
        attention.q_proj.weight[at] *= _QUIET
        attention.k_proj.weight[at] *= _QUIET
        attention.v_proj.weight[at] = token
        attention.o_proj.weight[:, at] = place.T * _WRITE
