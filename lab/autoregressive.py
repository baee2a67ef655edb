"""An autoregressive model in PyTorch: greedy decoding, and what each of its layers says.

Responsible for Qwen2 checkpoints, the logit lens: a layer's state, normalised and put through the model's own
head (nostalgebraist 2020), and answers of the first layers by themselves. Not responsible for diffusion.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloud_anchor.errors import CheckpointError


@dataclass(frozen=True)
class Lens:
    """A layer's predictions over an answer of n tokens: most probable tokens and their probabilities, [n]."""

    layer: int
    ids: list[int]
    probabilities: list[float]


class Autoregressive:
    """A causal language model. name: for tables. layers: its depth. parameters: its size."""

    def __init__(self, net: Any, name: str, eos_ids: frozenset[int]) -> None:
        self.net, self.name = net, name
        self.eos_ids = eos_ids
        self.layers = int(net.config.num_hidden_layers)
        self.parameters = int(sum(p.numel() for p in net.parameters()))
        self.context = int(net.config.max_position_embeddings)

    @classmethod
    def load(cls, folder: Path, eos_ids: frozenset[int], *, device: str | None = None) -> Autoregressive:
        """A Qwen2 checkpoint; bfloat16 on CUDA, else float32. Raises CheckpointError."""
        from lab.pairs.row_weights import open_qwen2

        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
        try:
            net = open_qwen2(folder, dtype=dtype, local_files_only=True)
        except (OSError, ValueError, ImportError) as error:
            raise CheckpointError(f"{folder}: expected a Qwen2 checkpoint, found: {error}") from error
        return cls(net.to(place).eval(), folder.name, eos_ids)

    def write(self, prompt_ids: Sequence[int], most: int) -> list[int]:
        """Greedy answer of at most `most` tokens and of what the context leaves, without the end marker."""
        return self.write_early(prompt_ids, most, self.layers).ids

    @torch.no_grad()
    def write_early(self, prompt_ids: Sequence[int], most: int, layer: int) -> Lens:
        """The greedy answer of the first `layer` layers by themselves, each token fed back to them.

        Otherwise as `write`. Unlike `lenses` it needs no answer of the whole model.
        """
        most = min(most, self.context - len(prompt_ids))
        if most < 1:
            return Lens(layer, [], [])
        ids = torch.tensor([list(prompt_ids)], device=self.net.device)
        out = self._first_layers(layer).generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=1,
            max_new_tokens=most,
            eos_token_id=sorted(self.eos_ids),
            pad_token_id=min(self.eos_ids),
            return_dict_in_generate=True,
            output_logits=True,
        )
        answer = out.sequences[0, len(prompt_ids) :].tolist()
        end = next((i for i, token in enumerate(answer) if token in self.eos_ids), len(answer))
        chances = [float(row[0].float().softmax(-1)[t]) for row, t in zip(out.logits, answer, strict=True)]
        return Lens(layer, [int(t) for t in answer[:end]], [round(p, 5) for p in chances[:end]])

    def _first_layers(self, layer: int) -> Any:
        """A model of the first `layer` layers and the head, which shares its weights with the whole one."""
        if layer == self.layers:
            return self.net
        twin, body = copy.copy(self.net), copy.copy(self.net.model)
        for part in (twin, body):
            part._modules = dict(part._modules)
            part.config = copy.deepcopy(self.net.config)
        for config in (twin.config, body.config):
            config.num_hidden_layers = layer
            if getattr(config, "layer_types", None):
                config.layer_types = config.layer_types[:layer]
        body.layers = self.net.model.layers[:layer]
        twin.model = body
        return twin

    @torch.no_grad()
    def lenses(self, prompt_ids: Sequence[int], answer: Sequence[int]) -> list[Lens]:
        """Each layer's predictions at the positions of `answer`, given all tokens before; the last layer is
        the model itself. End markers are suppressed: an answer has none.
        """
        ids = torch.tensor([[*prompt_ids, *answer]], device=self.net.device)
        states = self.net.model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
        rows = slice(len(prompt_ids) - 1, len(prompt_ids) + len(answer) - 1)
        found = []
        for layer, state in enumerate(states[1:], 1):
            kept: Tensor = state[0, rows]
            if layer < self.layers:  # the last state is normalised already
                kept = self.net.model.norm(kept)
            logits = self.net.lm_head(kept).float()
            logits[:, sorted(self.eos_ids)] = -torch.inf
            top, likeliest = logits.softmax(-1).max(-1)
            found.append(Lens(layer, likeliest.tolist(), [round(p, 5) for p in top.tolist()]))
        return found
