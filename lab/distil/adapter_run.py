"""The training of adapters on a diffusion model's own answers, as `lab.pairs.trainer.train` drives it.

Responsible for a step: passes, loss, AdamW. Not responsible for rows (see `canvases`), for adapters (see
`adapters`) or for what a run consists of (see `with_adapters`).

What is trained is what runs: each pass is that of the sampler's own `DreamModel`, with gradients on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen2ForCausalLM

from cloud_anchor.model.dream import DreamModel
from lab.distil.adapters import insert
from lab.distil.canvases import Canvases, CanvasState
from lab.distil.loss import surprise, uncertainty
from lab.pairs.pair import TrainingRecipe
from lab.pairs.trainer import Run


class AdapterRun(Run):
    """The training of a model's adapters.

    certainty: the weight of the entropy at positions where the best token is the right one (see `loss`).
    pass_tokens: most tokens of a pass; the gradients of a step's passes are added up. edge: the edge model by
    whose surprise a token's loss is weighed.
    """

    def __init__(
        self,
        model: DreamModel,
        rows: Canvases,
        recipe: TrainingRecipe,
        folder: Path,
        *,
        rank: int,
        seed: int,
        certainty: float = 0.0,
        pass_tokens: int = 4096,
        edge: Qwen2ForCausalLM | None = None,
    ) -> None:
        super().__init__(recipe, folder, seed=seed, device=str(model.device))
        torch.manual_seed(seed)
        if model.device.type == "cuda":
            # The adapters' products are in float32: in TF32 they are precise enough, and much faster.
            torch.set_float32_matmul_precision("high")
        self.model, self._rows, self._edge = model, rows, edge
        self._certainty, self._pass_tokens = certainty, pass_tokens
        self.adapters = insert(model.net, rank)
        self._optimiser = torch.optim.AdamW(self.adapters.values(), lr=recipe.adam_rate, weight_decay=0.0)
        _checkpointed(model.net)

    def take(self) -> tuple[float, int]:
        passes = self._rows.at(self.step, self._pass_tokens)
        if self._edge is not None:
            passes = [each.weighed(self._surprise(each)) for each in passes]
        total, lost = sum(each.weight for each in passes), 0.0
        self.model.net.train()  # which turns the checkpoints on; there is no dropout
        try:
            for each in passes:
                loss = self.loss(each) / total
                loss.backward()  # type: ignore[no-untyped-call]
                lost += float(loss.detach())
        finally:
            self.model.net.eval()
        torch.nn.utils.clip_grad_norm_(self.adapters.values(), 1.0)
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.adam_rate * self.rate()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self.step += 1
        return lost, sum(each.tokens for each in passes)

    def logits(self, state: CanvasState) -> Tensor:
        """Logits [N, V] of the N masked positions, as the model's own of `DreamModel`, with gradients."""
        shown, masked = (each.to(self.device) for each in (state.shown(self.model.mask_id), state.masked))
        batch = self.model.batch(state.prompts, shown.shape[1])
        logits: Tensor = self.model.net.lm_head(self.model.states(batch, shown)[masked])
        return logits

    def loss(self, state: CanvasState) -> Tensor:
        """Weighed cross-entropy of the masked positions, and entropy of those that are right, summed up."""
        logits = self.logits(state).float()
        targets, weights = (each[state.masked].to(self.device) for each in (state.canvas, state.weights))
        loss = (F.cross_entropy(logits, targets, reduction="none") * weights).sum()
        if self._certainty:
            loss = loss + self._certainty * uncertainty(logits, targets, weights)
        return loss

    def _surprise(self, state: CanvasState) -> Tensor:
        """Float32 [B, C]: the weight of each token of the canvases by the edge model's surprise."""
        assert self._edge is not None
        rows = [[*prompt, *line] for prompt, line in zip(state.prompts, state.canvas.tolist(), strict=True)]
        longest = max(map(len, rows))
        # What is behind a row changes nothing before it: the edge model reads from left to right.
        ids = torch.tensor([row + row[-1:] * (longest - len(row)) for row in rows], device=self.device)
        weights, size = surprise(self._edge, ids).cpu(), state.canvas.shape[1]
        starts = [len(prompt) for prompt in state.prompts]
        return torch.stack([line[at : at + size] for line, at in zip(weights, starts, strict=True)])

    def state(self) -> dict[str, Any]:
        adapters = {name: weight.detach() for name, weight in self.adapters.items()}
        return {"adapters": adapters, "optimiser": self._optimiser.state_dict()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        for name, weight in self.adapters.items():
            weight.copy_(state["adapters"][name])
        self._optimiser.load_state_dict(state["optimiser"])


def _checkpointed(net: Any) -> None:
    """Keeps of each layer only its input for the way back: the rest is computed again while training."""
    word = "activation" if hasattr(net, "activation_checkpointing_enable") else "gradient"  # transformers 4
    settings = {f"{word}_checkpointing_kwargs": {"use_reentrant": False}}
    getattr(net, f"{word}_checkpointing_enable")(**settings)
