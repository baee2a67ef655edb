"""A second, plain implementation of the diffusion model and of Dream's sampler, to compare with.

Nothing here shares code with `cloud_anchor`: the transformer is written out from its equations and reads the
checkpoint's tensors by name; the sampler handles one prompt, computes logits for every position, and sorts.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributions import Categorical


class ReferenceModel:
    """Qwen2's equations with attention in both directions; logits for a single row of ids."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[name]

    def _linear(self, x: Tensor, name: str) -> Tensor:
        out = x @ self.weights[f"{name}.weight"].T
        return out + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else out

    def _rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        speed = self.config["rope_theta"] ** (-torch.arange(half) / half)
        angle = torch.arange(x.shape[-2])[:, None] * speed
        first, second = x[..., :half], x[..., half:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def hidden(self, ids: Tensor) -> Tensor:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        x = self.weights["model.embed_tokens.weight"][ids]
        size, width = x.shape
        dim = width // heads
        for layer in range(self.config["num_hidden_layers"]):
            base = f"model.layers.{layer}"
            y = self._norm(x, f"{base}.input_layernorm.weight")
            q = self._linear(y, f"{base}.self_attn.q_proj").view(size, heads, dim).transpose(0, 1)
            k = self._linear(y, f"{base}.self_attn.k_proj").view(size, kv_heads, dim).transpose(0, 1)
            v = self._linear(y, f"{base}.self_attn.v_proj").view(size, kv_heads, dim).transpose(0, 1)
            k, v = (t.repeat_interleave(heads // kv_heads, 0) for t in (k, v))
            score = (self._rotate(q) @ self._rotate(k).transpose(1, 2)) / dim**0.5
            mixed = (score.softmax(-1) @ v).transpose(0, 1).reshape(size, width)
            x = x + self._linear(mixed, f"{base}.self_attn.o_proj")
            y = self._norm(x, f"{base}.post_attention_layernorm.weight")
            gate = torch.nn.functional.silu(self._linear(y, f"{base}.mlp.gate_proj"))
            x = x + self._linear(gate * self._linear(y, f"{base}.mlp.up_proj"), f"{base}.mlp.down_proj")
        return self._norm(x, "model.norm.weight")

    def logits(self, ids: Tensor) -> Tensor:
        """[L, V], unshifted."""
        head = "model.embed_tokens" if self.config.get("tie_word_embeddings") else "lm_head"
        return self.hidden(ids) @ self.weights[f"{head}.weight"].T

    def shifted(self, ids: Tensor) -> Tensor:
        """[L, V]: row p predicts position p, from the output at p - 1."""
        logits = self.logits(ids)
        return torch.cat([logits[:1], logits[:-1]])


def sample_in_blocks(
    model: ReferenceModel, prompt: list[int], *, canvas: int, block: int, steps: int
) -> list[list[int]]:
    """LLaDA's procedure for one prompt, greedy: blocks from left to right, each with its part of the steps,
    in each as many tokens, in the first ones one more. The canvas after each step.
    """
    mask, size = model.config["mask_token_id"], len(prompt)
    x = torch.tensor(prompt + [mask] * canvas)
    history = []
    for start in range(size, size + canvas, block):
        each = steps * block // canvas
        for step in range(each):
            chance = model.logits(x).softmax(-1)
            best, token = chance.max(-1)
            best[(x != mask) | (torch.arange(len(x)) >= start + block)] = -torch.inf
            count = block // each + (step < block % each)
            places = best.sort(descending=True, stable=True).indices[:count]
            x[places] = token[places]
            history.append(x[size:].tolist())
    return history


def keep_nucleus(logits: Tensor, top_p: float) -> Tensor:
    ordered, index = logits.sort(descending=True)
    before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
    before[:, 0] = 0
    drop = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, index, before > top_p)
    return logits.masked_fill(drop, torch.finfo(logits.dtype).min)


def pick(logits: Tensor, temperature: float, top_p: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Filtered probabilities [N, V], tokens [N], their probability [N]."""
    if temperature > 0:
        logits = logits / temperature
    if top_p is not None and top_p < 1:
        logits = keep_nucleus(logits, top_p)
    probs = logits.softmax(-1)
    if temperature > 0:
        try:
            tokens = Categorical(probs=probs).sample()
        except ValueError:
            tokens = probs.max(-1).indices
    else:
        tokens = probs.max(-1).indices
    return probs, tokens, probs.gather(-1, tokens[:, None])[:, 0]


def sample(
    model: ReferenceModel,
    prompt: list[int],
    *,
    canvas: int,
    steps: int,
    alg: str,
    temperature: float,
    top_p: float | None,
    seed: int,
) -> list[list[int]]:
    """The canvas after each step, Dream's procedure for one prompt. Ties go to the lower position."""
    mask = model.config["mask_token_id"]
    torch.manual_seed(seed)
    x = torch.tensor(prompt + [mask] * canvas)
    times = torch.linspace(1, 1e-3, steps + 1)
    history = []
    for i in range(steps):
        open_ = x == mask
        logits = model.shifted(x)[open_]
        t, s = times[i], times[i + 1]
        last = i == steps - 1
        probs, tokens, chance = pick(logits, temperature, top_p)
        score = chance if alg == "maskgit_plus" else (probs * (probs + 1e-10).log()).sum(-1)
        left = open_.sum() / 1
        count = int(left) if last else int(left * (1 - s / t))
        full = torch.full(x.shape, -torch.inf)
        full[open_] = score
        if count:
            index = full.sort(descending=True, stable=True).indices[:count]
            proposed = torch.full_like(x, mask)
            proposed[open_] = tokens
            x[index] = proposed[index]
        history.append(x[len(prompt) :].tolist())
    return history
