"""An autoregressive model in PyTorch: greedy decoding, and the logit lens of each layer.

Responsible for Qwen2 checkpoints and the logit lens: a layer's state, normalised and put through the model's
own head (nostalgebraist 2020). Not responsible for diffusion.
"""

from __future__ import annotations

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
    def load(
        cls, folder: Path, eos_ids: frozenset[int], *, device: str | None = None, four_bit: bool = False
    ) -> Autoregressive:
        """A Qwen2 checkpoint; bfloat16 on CUDA, else float32. Raises CheckpointError.

        four_bit: NF4 weights by bitsandbytes, on CUDA: 32B parameters then take about 20 GB.
        """
        from transformers import Qwen2ForCausalLM

        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        options: dict[str, Any] = {
            "dtype": torch.bfloat16 if place.type == "cuda" else torch.float32,
            "local_files_only": True,
        }
        if four_bit:
            from transformers import BitsAndBytesConfig

            options["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
            )
            options["device_map"] = {"": place}
        try:
            net = Qwen2ForCausalLM.from_pretrained(folder, **options)
        except (OSError, ValueError, ImportError) as error:
            raise CheckpointError(f"{folder}: expected a Qwen2 checkpoint, found: {error}") from error
        return cls((net if four_bit else net.to(place)).eval(), folder.name, eos_ids)

    @torch.no_grad()
    def write(self, prompt_ids: Sequence[int], most: int) -> list[int]:
        """Greedy answer of at most `most` tokens and of what the context leaves, without the end marker."""
        most = min(most, self.context - len(prompt_ids))
        if most < 1:
            return []
        ids = torch.tensor([list(prompt_ids)], device=self.net.device)
        out = self.net.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=1,
            max_new_tokens=most,
            eos_token_id=sorted(self.eos_ids),
            pad_token_id=min(self.eos_ids),
        )
        answer = out[0, len(prompt_ids) :].tolist()
        end = next((i for i, token in enumerate(answer) if token in self.eos_ids), len(answer))
        return [int(token) for token in answer[:end]]

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
