"""The training of a block drafter: its options, its target, and what its loss takes from a batch.

Runs are seeded and resumable. Not responsible for the loop, the optimisers and the log (see
`lab.pairs.trainer`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from cloud_anchor.errors import CheckpointError, RequestError
from cloud_anchor.model.checkpoint import read_json
from cloud_anchor.model.prompt_form import checkpoint_form
from common.cli import option
from edge_runtime.commands import positive
from lab.drafting.answers import BlockBatch, Target, TargetAnswer, block_batch
from lab.drafting.block_model import BlockForm, block_logits, build_drafter
from lab.drafting.losses import drafter_loss
from lab.pairs.pair import TrainingRecipe
from lab.pairs.row_weights import open_qwen2
from lab.pairs.trainer import Trainer


@dataclass(frozen=True)
class DrafterOptions:
    """The size of a drafter and of its training."""

    block: int = option(8, "K, tokens drafted in one pass")
    layers: int = option(2, "layers, at first the target's", positive)
    blocks: int = option(8, "drafts of each answer in a batch", positive)
    tokens: int = option(2048, "of text in a batch", positive)
    steps: int = option(2000, "training steps", positive)

    def __post_init__(self) -> None:
        if self.block < 2:
            raise RequestError(f"--block: expected at least 2, found {self.block}")


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
    return Target(net, BlockForm(block, mask), form.ids, sorted(form.contract.eos_ids), context)


class DrafterTrainer(Trainer):
    """One training run of a drafter; loss: the terms of `losses.drafter_loss`."""

    def __init__(
        self,
        options: DrafterOptions,
        loss: Mapping[str, float],
        target: Target,
        answers: Sequence[TargetAnswer],
        folder: Path,
        *,
        seed: int,
        device: str,
    ) -> None:
        self._options, self._loss, self._target = options, loss, target
        self._answers = sorted(answers, key=lambda item: len(item.prompt) + len(item.answer))
        recipe = TrainingRecipe("drafter", steps=options.steps, causal_steps=0, knows=True)
        super().__init__(recipe, folder, seed=seed, device=device)

    def build(self) -> Qwen2ForCausalLM:
        return build_drafter(self._target.net, self._options.layers)

    def batch(self) -> BlockBatch:
        rng = random.Random(f"{self.seed}/{self.step}")
        return block_batch(self._answers, self._options.blocks, self._options.tokens, rng)

    def loss(self, batch: BlockBatch) -> torch.Tensor:
        form = self._target.form
        ids, starts = batch.ids.to(self.device), batch.starts.to(self.device)
        places = starts[..., None] + torch.arange(form.block, device=self.device)
        valid = places <= batch.end.to(self.device)[:, None, None]
        wanted = ids[:, None].expand(-1, starts.shape[1], -1).gather(2, places.clamp(max=ids.shape[1] - 1))
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            states = self._target.states(ids).clone()
            logits = block_logits(self.model, form, ids, starts, states)
        return drafter_loss(
            logits.float().log_softmax(-1).flatten(0, 1),
            wanted.flatten(0, 1),
            valid.flatten(0, 1),
            **self._loss,
        )
