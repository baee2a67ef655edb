"""A diffusion language model on stock Qwen2 or Qwen3 modules: what all of them have.

Responsible for the vocabulary of answers and for the sizes of the model. Not responsible for attention or for
what a pass predicts (see `dream`, `block_diffusion`), nor for weights (see `checkpoint`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cloud_anchor.model.families import Family
from cloud_anchor.sampling.schedules import Schedule
from payload import Contract


class StockModel:
    """The sizes and the vocabulary of a loaded model; see `protocol.DiffusionModel`.

    mask_id: the token of positions that are not committed.
    eos_ids: tokens that end an answer or fill the canvas after it.
    plan:    canvas and steps of a full run, where the checkpoint states them.
    commit:  the probability from which its tokens commit in parallel, where the checkpoint states it.
    """

    def __init__(
        self,
        net: Any,
        family: Family,
        mask_id: int,
        eos_ids: frozenset[int],
        source: str,
        plan: tuple[int, int] | None = None,
        commit: float | None = None,
    ) -> None:
        self.net = net
        self.family = family
        self.mask_id = mask_id
        self.eos_ids = eos_ids
        self.source = source
        self.plan = plan
        self.commit = commit
        self.ends = torch.tensor(sorted(eos_ids), device=self.device)
        self._unusable = torch.tensor([mask_id], device=self.device)
        self._body: Any = net.model

    def compile(self) -> None:
        """Compiles the layers with torch.compile, for any number of rows and positions.

        The first passes then take minutes. The order of summation changes, so logits differ in the last
        digits.
        """
        self._body = torch.compile(self.net.model, dynamic=True)

    def adopt(self, contract: Contract) -> None:
        """Sets the vocabulary of answers: a contract's ordinary ids and end markers, no other tokens."""
        self.eos_ids |= contract.eos_ids
        self.ends = torch.tensor(sorted(self.eos_ids), device=self.device)
        others = set(range(contract.vocab_size, self.vocab_rows)) | contract.reserved | {self.mask_id}
        self._unusable = torch.tensor(sorted(others - self.eos_ids), device=self.device)

    def without_unusable(self, logits: Tensor) -> Tensor:
        """Logits [N, V] with -inf for the mask token and all others that no answer has."""
        return logits.index_fill(-1, self._unusable, -torch.inf)

    @property
    def schedule(self) -> Schedule:
        """That of the family's published sampler."""
        return self.family.schedule

    @property
    def device(self) -> torch.device:
        device: torch.device = self.net.model.embed_tokens.weight.device
        return device

    @property
    def vocab_rows(self) -> int:
        """Rows of the logits, which may exceed the number of tokens."""
        return int(self.net.config.vocab_size)

    @property
    def context(self) -> int:
        """Most positions, prompt and canvas together."""
        return int(self.net.config.max_position_embeddings)

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(weight.numel() for weight in self.net.parameters())
