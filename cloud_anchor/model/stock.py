"""What diffusion language models in this process share: the vocabulary of their answers; and the sizes of
those on transformers' own modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from cloud_anchor.model.families import Family
from cloud_anchor.sampling.schedules import Schedule
from payload import Contract


class AnswerModel(ABC):
    """The vocabulary of a model's answers; see `protocol.DiffusionModel`.

    eos_ids: tokens that end an answer or fill the canvas after it.
    plan:    canvas and steps of a full run, where the checkpoint states them.
    mask_id: the token of positions that are not committed, where there is one.
    """

    def __init__(
        self, eos_ids: frozenset[int], source: str, plan: tuple[int, int] | None, mask_id: int | None = None
    ) -> None:
        self.eos_ids = eos_ids
        self.source = source
        self.plan = plan
        self._masks = frozenset(() if mask_id is None else (mask_id,))
        self._set_vocabulary(self._masks)

    def _set_vocabulary(self, unusable: frozenset[int]) -> None:
        self.ends = torch.tensor(sorted(self.eos_ids), dtype=torch.long, device=self.device)
        self._unusable = torch.tensor(sorted(unusable), dtype=torch.long, device=self.device)

    def adopt(self, contract: Contract) -> None:
        """Sets the vocabulary of answers: a contract's ordinary ids and end markers, no other tokens."""
        self.eos_ids |= contract.eos_ids
        others = frozenset(range(contract.vocab_size, self.vocab_rows)) | contract.reserved | self._masks
        self._set_vocabulary(others - self.eos_ids)

    def without_unusable(self, logits: Tensor) -> Tensor:
        """Logits [..., V] with -inf for the mask token and all others that no answer has."""
        return logits.index_fill(-1, self._unusable, -torch.inf)

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where it runs."""

    @property
    @abstractmethod
    def vocab_rows(self) -> int:
        """Rows of the logits, which may exceed the number of tokens."""


class LoadedModel(AnswerModel):
    """The sizes of a model on transformers' modules (`net`)."""

    def __init__(
        self,
        net: Any,
        eos_ids: frozenset[int],
        source: str,
        plan: tuple[int, int] | None,
        mask_id: int | None = None,
    ) -> None:
        self.net = net
        self.text = net.config.get_text_config()
        super().__init__(eos_ids, source, plan, mask_id)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.net.lm_head.weight.device
        return device

    @property
    def vocab_rows(self) -> int:
        """Rows of the logits, which may exceed the number of tokens."""
        return int(self.text.vocab_size)

    @property
    def context(self) -> int:
        """Most positions, prompt and canvas together."""
        return int(self.text.max_position_embeddings)

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(weight.numel() for weight in self.net.parameters())


class StockModel(LoadedModel):
    """A model of a family on stock Qwen2 or Qwen3 modules.

    commit: the probability from which its tokens commit in parallel, where the checkpoint states it.
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
        super().__init__(net, eos_ids, source, plan, mask_id)
        self.family = family
        self.mask_id = mask_id
        self.commit = commit

    @property
    def schedule(self) -> Schedule:
        """That of the family's published sampler."""
        return self.family.schedule
