"""The training loop: optimisers, averaged weights, checkpoints, the log (JSON lines) and its plot.

Responsible for these, for every model that is trained here, and for the losses of a pair's models. Not
responsible for batches (see `batches`), for what a pair is trained on (see its recipe) or for the command
(see `train`). Runs are seeded and resumable.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from transformers import Qwen2ForCausalLM

from cloud_anchor.model.checkpoint import tensors_of
from common.progress import Progress, Silent
from lab.pairs import shapes
from lab.pairs.batches import Batches, Mix, TrainingBatch, mask
from lab.pairs.pair import Pair, TrainingRecipe
from lab.pairs.row_weights import FILE
from lab.pairs.tokens import special_ids
from lab.plots import png
from lab.records import read_records

CANVAS_PROMPT = 64
"""So many tokens of the longest training row are left to the prompt: the rest is the exported canvas."""
SAVE_SECONDS = 120
TAIL = 0.1
"""Weight of an end marker behind the first one: that tail is long and easily predicted."""


class Trainer(ABC):
    """The training of a model: its recipe, its files, optimisers, averaged weights and the current step."""

    def __init__(
        self, recipe: TrainingRecipe, folder: Path, *, seed: int, device: str, compiled: bool = False
    ) -> None:
        self.recipe, self.folder, self.seed, self.device = recipe, folder, seed, device
        self.step = 0
        torch.manual_seed(seed)
        self.model = self.build().to(device)
        self.ema = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        backbone = self.model.model
        matrices = [p for n, p in backbone.named_parameters() if p.ndim == 2 and "embed" not in n]
        taken = {id(p) for p in matrices}
        others = [p for p in self.model.parameters() if id(p) not in taken]
        self.optimisers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=recipe.muon_rate, weight_decay=0.01, adjust_lr_fn="original"),
            torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self.backbone: Any = torch.compile(backbone, dynamic=True) if compiled else backbone

    @abstractmethod
    def build(self) -> Qwen2ForCausalLM:
        """The model with its first weights."""

    @abstractmethod
    def batch(self) -> Any:
        """The batch of the next step, a function of the seed and the step alone; it has `ids`."""

    @abstractmethod
    def loss(self, batch: Any) -> torch.Tensor:
        """The mean loss of a batch, in nats a token."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"{self.recipe.name}.pt"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.recipe.name}.jsonl"

    def save(self) -> None:
        """Replace the checkpoint atomically."""
        fresh = self.checkpoint.with_suffix(".new")
        state = {
            "model": self.model.state_dict(),
            "ema": self.ema,
            "optimisers": [o.state_dict() for o in self.optimisers],
            "step": self.step,
        }
        torch.save(state, fresh)
        os.replace(fresh, self.checkpoint)

    def resume(self) -> None:
        """Restore the state of the checkpoint, where there is one."""
        if not self.checkpoint.exists():
            self.log.unlink(missing_ok=True)
            return
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.ema = state["ema"]
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.step = int(state["step"])
        kept = [line for line in self.logged() if line["step"] <= self.step]
        self.log.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def logged(self) -> list[dict[str, float]]:
        """The log's records: step, mean loss since the record before, seconds of training."""
        return read_records(self.log)

    def rate(self) -> float:
        """Learning-rate factor: 100 steps of warm-up, constant, linear decay over the last share."""
        decay = self.recipe.decay_share * self.recipe.steps
        return min(1.0, (self.step + 1) / 100, max(0.0, (self.recipe.steps - self.step) / decay))

    def start_from(self, folder: Path) -> None:
        """Begin with an exported checkpoint folder's weights; raises CheckpointError, and RuntimeError for
        other shapes.
        """
        state = dict(tensors_of(folder / FILE, torch.device(self.device)))
        tied = bool(self.model.config.tie_word_embeddings)  # these are stored once
        self.model.load_state_dict({k: v.float() for k, v in state.items()}, strict=not tied)
        self.ema = {k: v.detach().clone() for k, v in self.model.state_dict().items()}

    def advance(self, batch: Any) -> float:
        """One step of both optimisers; returns the loss in nats per token."""
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        factor = self.rate()
        for optimiser, rate in zip(
            self.optimisers, (self.recipe.muon_rate, self.recipe.adam_rate), strict=True
        ):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.step += 1
        keep = min(self.recipe.ema, self.step / (self.step + 10))
        with torch.no_grad():
            for key, value in self.model.state_dict().items():
                self.ema[key].lerp_(value, 1 - keep)
        return float(loss.detach())

    def averaged(self) -> Qwen2ForCausalLM:
        """A model with the averaged weights."""
        model = self.build()
        model.load_state_dict(self.ema)
        return model.to(self.device)


class PairTrainer(Trainer):
    """The training of one model of a pair: first with a causal loss, then as a masked diffusion model.

    As Dream was initialised from Qwen2.5's weights, hence the shift of its logits; an autoregressive model
    has causal steps only.
    """

    def __init__(
        self,
        pair: Pair,
        recipe: TrainingRecipe,
        tokenizer: Tokenizer,
        folder: Path,
        *,
        seed: int,
        device: str,
        compiled: bool = False,
    ) -> None:
        self.shape, self.curriculum, self._initial = pair.shapes[recipe.name], pair.curriculum, pair.initial
        self.mask_id = special_ids(self.shape["pad_token_id"])[3]
        self._batches = Batches(tokenizer, pair.curriculum.families, knows=recipe.knows, seed=seed)
        super().__init__(recipe, folder, seed=seed, device=device, compiled=compiled)

    def build(self) -> Qwen2ForCausalLM:
        model = shapes.build(self.shape)
        if self._initial:
            self._initial(model)
        return model

    @property
    def causal(self) -> bool:
        """True where the next step has the causal loss."""
        return self.step < self.recipe.causal_steps

    def batch(self) -> TrainingBatch:
        size = self.recipe.causal_tokens if self.causal else self.recipe.masked_tokens
        return self._batches.at(self.step, size, self._mix())

    def _mix(self) -> Mix:
        """The curriculum's mix for the next step."""
        recipe, mixes = self.recipe, self.curriculum
        if mixes.early and self.step < recipe.early_steps:
            return mixes.early
        if mixes.late and self.step >= recipe.steps - recipe.late_steps:
            return mixes.late
        return mixes.causal if self.causal else mixes.masked

    def loss(self, batch: TrainingBatch) -> torch.Tensor:
        """Mean cross-entropy of the trained positions, in nats; position p is predicted at p - 1."""
        at = torch.arange(batch.ids.shape[1])[None]
        if self.causal:
            ids, wanted = batch.ids, (at >= batch.start[:, None]) & (at <= batch.end[:, None])
        else:
            ids, wanted = mask(batch, np.random.default_rng([self.seed, self.step]), self.mask_id)
        logits, targets, weights = self.predictions(batch, ids, wanted)
        return (F.cross_entropy(logits, targets, reduction="none") * weights).sum() / weights.sum()

    def predictions(
        self, batch: TrainingBatch, ids: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits [N, V], targets and weights [N] of the N positions that `wanted` (bool [B, L]) marks, in
        row-major order; `ids` [B, L] is what the model sees of the batch.
        """
        length = ids.shape[1]
        weight = torch.where(torch.arange(length)[None] > batch.end[:, None], TAIL, 1.0)
        targets, weights = batch.ids[wanted].to(self.device), weight.expand(ids.shape)[wanted].to(self.device)
        return self.logits_at(self.backbone, self.model.lm_head, ids, wanted), targets, weights

    def logits_at(
        self, backbone: nn.Module, head: nn.Module, ids: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Float32 logits [N, V] of a model at the N positions that `wanted` marks, as in `predictions`."""
        length = ids.shape[1]
        # The mask is built here: inside the compiled graph, transformers would build it for every length.
        attention = None
        if self.causal:
            attention = torch.full((1, 1, length, length), float("-inf"), device=self.device).triu(1)
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            hidden = backbone(
                input_ids=ids.to(self.device), attention_mask={"full_attention": attention}, use_cache=False
            ).last_hidden_state
            logits: torch.Tensor = head(hidden[:, :-1][wanted[:, 1:].to(self.device)])
        return logits.float()

    def export(self, tokenizer_folder: Path, folder: Path, *, diffusion: bool | None = None) -> None:
        """Write the averaged weights as a checkpoint folder, by default of the recipe's architecture."""
        shapes.write(
            self.shape,
            self.averaged(),
            tokenizer_folder,
            folder,
            diffusion=self.recipe.diffusion if diffusion is None else diffusion,
            canvas=max(self.curriculum.masked.lengths) - CANVAS_PROMPT,
        )


def train(
    run: Trainer, *, progress: Progress | None = None, watch: Callable[[], None] = lambda: None
) -> None:
    """Run to the recipe's last step, logging every 10 steps and saving every `SAVE_SECONDS`.

    watch: called after every step, for what is done on the way. An interrupted run is saved.
    """
    recipe, recent, tokens = run.recipe, list[float](), 0
    since = saved = time.monotonic()
    started = saved - (run.logged() or [{"seconds": 0.0}])[-1]["seconds"]
    stage = (progress or Silent()).stage(recipe.name, recipe.steps - run.step)
    try:
        with stage as done, run.log.open("a") as log:
            while run.step < recipe.steps:
                batch = run.batch()
                recent.append(run.advance(batch))
                tokens += batch.ids.numel()
                done(1)
                now = time.monotonic()
                if run.step % 10 == 0:
                    row = {
                        "step": run.step,
                        "loss": round(sum(recent) / len(recent), 4),
                        "seconds": round(now - started, 1),
                        "tokens_per_second": round(tokens / (now - since)),
                    }
                    log.write(json.dumps(row) + "\n")
                    log.flush()
                    recent, tokens, since = [], 0, now
                if now - saved > SAVE_SECONDS:
                    run.save()
                    saved = now
                watch()
    finally:
        run.save()


def plot(logs: Mapping[str, pd.DataFrame], file: Path) -> None:
    """Plot loss against steps, one curve per log."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for name, log in logs.items():
            log.plot("step", "loss", ax=axes, label=name, linewidth=0.8)
        axes.set(xlabel="step", ylabel="loss (nats per token)", yscale="log")

    file.write_bytes(png(draw, (7, 4), 120))
