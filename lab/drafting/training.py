"""The training of a block drafter: its plan, its target, and what its loss takes from a batch.

Responsible for these; runs are seeded and resumable. Not responsible for the loop, the optimisers and the log
(see `lab.pairs.trainer`), the losses (see `losses`) or the model (see `block_model`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from cloud_anchor.errors import CheckpointError, RequestError
from cloud_anchor.model.checkpoint import read_json
from cloud_anchor.model.prompt_form import checkpoint_form
from common.cli import option
from common.files import differing_settings
from lab.drafting.accepted import target_states
from lab.drafting.answers import AnswerBlocks, BlockBatch, Target, TargetAnswer
from lab.drafting.block_model import (
    BlockForm,
    begin_as,
    block_logits,
    build_drafter,
)
from lab.drafting.losses import drafter_loss
from lab.options import require_at_least
from lab.pairs.batches import TrainingBatch
from lab.pairs.pair import TrainingRecipe
from lab.pairs.row_weights import open_qwen2
from lab.pairs.trainer import Trainer, train


@dataclass(frozen=True)
class LossOptions:
    """The interventions of `losses.drafter_loss`: None and 0 leave one out."""

    gamma: float | None = None
    focal: float = 0.0
    chain: float = 0.0


@dataclass(frozen=True)
class DrafterSize:
    """The size of a drafter and of its training, which are options too."""

    block: int = option(8, "K, tokens drafted in one pass")
    layers: int = option(2, "layers, at first the target's")
    blocks: int = option(8, "drafts of each answer in a batch")
    tokens: int = option(2048, "of text in a batch")
    steps: int = option(2000, "training steps")

    def __post_init__(self) -> None:
        require_at_least(self, 2, "block")
        require_at_least(self, 1, "layers", "blocks", "tokens", "steps")


@dataclass(frozen=True)
class DrafterPlan(DrafterSize):
    """A drafter to be trained."""

    loss: LossOptions = LossOptions()


def weights_digest(folder: Path) -> str:
    """SHA-256 (hex) of a checkpoint's weights: its answers are of no use for other weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def load_target(folder: Path, block: int, device: str) -> Target:
    """An autoregressive checkpoint as the target of drafters of `block` tokens.

    The mask is the tokenizer's `<|mask|>`, else the first row of the embedding that no token has. Raises
    CheckpointError.
    """
    config = read_json(folder / "config.json")
    if "Qwen2ForCausalLM" not in config.get("architectures", []):
        raise CheckpointError(
            f"{folder}: expected an autoregressive target (Qwen2ForCausalLM), found "
            f"{config.get('architectures')}"
        )
    form = checkpoint_form(folder)
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    mask = words.token_to_id("<|mask|>")
    if mask is None:
        mask = max(words.get_vocab(with_added_tokens=True).values()) + 1
    rows = int(config["vocab_size"])
    if mask >= rows:
        raise CheckpointError(
            f"{folder}: expected a row of the embedding for a mask, found tokens for all {rows}. Add one."
        )
    net = open_qwen2(folder, dtype=torch.float32).to(device).eval()
    context = int(config["max_position_embeddings"]) - block
    ends = sorted(form.contract.eos_ids)
    return Target(folder, config, BlockForm(block, mask), net, form.ids, ends, context)


class DrafterTrainer(Trainer):
    """One training run of a drafter."""

    def __init__(
        self,
        plan: DrafterPlan,
        target: Target,
        answers: Sequence[TargetAnswer],
        folder: Path,
        *,
        seed: int,
        device: str,
    ) -> None:
        self.plan, self.form, self.target = plan, target.form, target
        self._answers = AnswerBlocks(answers, plan.blocks, seed)
        recipe = TrainingRecipe(
            "drafter", steps=plan.steps, causal_steps=0, knows=True, masked_tokens=plan.tokens
        )
        super().__init__(
            recipe, folder, seed=seed, device=device, initial=lambda net: begin_as(net, target.net)
        )

    def build(self) -> Qwen2ForCausalLM:
        return build_drafter(self.target.config, self.plan.layers)

    def batch(self) -> BlockBatch:
        return self._answers.at(self.step, self.plan.tokens)

    def loss(self, batch: TrainingBatch) -> torch.Tensor:
        assert isinstance(batch, BlockBatch)
        ids, starts = batch.ids.to(self.device), batch.starts.to(self.device)
        places = starts[..., None] + torch.arange(self.form.block, device=self.device)
        valid = places <= batch.end.to(self.device)[:, None, None]
        wanted = ids[:, None].expand(-1, starts.shape[1], -1).gather(2, places.clamp(max=ids.shape[1] - 1))
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            states = target_states(self.target, ids).clone()
            logits = block_logits(self.model, self.form, ids, starts, states)
        return drafter_loss(
            logits.float().log_softmax(-1).flatten(0, 1),
            wanted.flatten(0, 1),
            valid=valid.flatten(0, 1),
            **asdict(self.plan.loss),
        )


def train_drafter(
    plan: DrafterPlan,
    target: Target,
    answers: Sequence[TargetAnswer],
    folder: Path,
    *,
    seed: int,
    device: str,
) -> DrafterTrainer:
    """Train a drafter, or go on with its training.

    Raises RequestError where the folder holds a run of another plan.
    """
    most = int(target.config["num_hidden_layers"])
    if plan.layers > most:
        raise RequestError(f"layers: expected at most the {most} of the target, found {plan.layers}")
    folder.mkdir(parents=True, exist_ok=True)
    given = {"seed": seed, "answers": len(answers), "target": weights_digest(target.folder)}
    if differs := differing_settings(folder / "plan.json", asdict(plan) | given):
        raise RequestError(
            f"{folder}: holds a run with another {', '.join(differs)}. Use the same options to go on, or "
            "another folder."
        )
    trainer = DrafterTrainer(plan, target, answers, folder, seed=seed, device=device)
    trainer.resume()
    train(trainer, quiet=True)
    return trainer
