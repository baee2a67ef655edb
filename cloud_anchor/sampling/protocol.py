"""What the cloud side asks of a diffusion language model.

`DiffusionModel` is all that pipeline and service know: prompt ids in, `Answers` out, which say after each
step what is predicted with which probability, what is committed, and where each answer ends (`Denoised`). A
model with a sampler or a server of its own implements it as it is. One that predicts masked tokens in a pass
is a `MaskedModel`, and the sampler here makes its answers (see `step`). Not responsible for any of them
(see `model`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from cloud_anchor.errors import RequestError, require
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from payload import Contract

if TYPE_CHECKING:  # a server's model needs none of it
    import torch
    from torch import Tensor

    from cloud_anchor.sampling.schedules import Schedule


Left = Callable[[], float]
Runs = Iterator[Denoised]


class Answers(Protocol):
    """Answers being denoised, one per row, each at a step of its own."""

    @property
    def steps(self) -> Sequence[int]:
        """Steps run, per row."""

    def advance(self) -> None:
        """Runs one step of every row; where it fails, the rows stay as they were."""

    def done(self, limits: Sequence[int]) -> Mapping[int, str]:
        """Rows that are done, each with the reason (`Denoised.stopped_by`); limits: steps to run per row."""

    def results(self, reasons: Mapping[int, str]) -> list[Denoised]:
        """The rows in `reasons` as they are after their last step; a reason is the row's `stopped_by`."""

    def select_rows(self, rows: Sequence[int]) -> Self:
        """These rows by themselves."""

    def join(self, other: Self) -> Self:
        """The rows of both; of one model and configuration."""


class DiffusionModel(Protocol):
    """A diffusion language model."""

    @property
    def source(self) -> str:
        """The name that it was opened by."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer or fill the canvas after it."""

    @property
    def plan(self) -> tuple[int, int] | None:
        """Canvas and steps of a full run, where the checkpoint states them."""

    @property
    def context(self) -> int:
        """Most positions, prompt and canvas together."""

    @property
    def vocab_rows(self) -> int:
        """Rows of the logits, which may exceed the number of tokens."""

    @property
    def parameters(self) -> int:
        """Number of weights."""

    def adopt(self, contract: Contract) -> None:
        """Sets the vocabulary of answers: a contract's ordinary ids and end markers, no other tokens."""

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> Answers:
        """Answers to these prompts (token ids), before the first step.

        Raises RequestError for options that the model does not have.
        """


@runtime_checkable
class OwnSampler(DiffusionModel, Protocol):
    """A model whose published sampler decides what it accepts, whatever is sent of it."""

    def published(self, config: DenoiseConfig, *, sends_predictions: bool) -> DenoiseConfig:
        """`config` with the commit rule that `auto` stands for.

        Raises RequestError where it cannot tell what a selection of committed tokens needs.
        """


@runtime_checkable
class AskedModel(DiffusionModel, Protocol):
    """A model on a server, which is asked for each answer by itself."""

    def runs(self, prompt: Sequence[int], config: DenoiseConfig, marks: Sequence[int], left: Left) -> Runs:
        """The answer after each of these numbers of steps, ascending; none after it is done. left: seconds.

        Raises RequestError for options that the model does not have, and ServerError.
        """


def require_options(config: DenoiseConfig, who: str, **values: Collection[object]) -> None:
    """Raises RequestError for an option of `config`, by its name, that has none of these values."""
    for name, allowed in values.items():
        found, title = getattr(config, name), name.replace("top_", "top-").replace("_", " ")
        names = " or ".join("none" if value is None else str(value) for value in allowed)
        require(title, found in allowed, f"{names} with {who}", found)


def require_room(model: DiffusionModel, prompts: Sequence[Sequence[int]], canvas: int) -> None:
    """Raises RequestError for an empty prompt, and for one that leaves too little of the context."""
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise RequestError(f"prompt {row}: expected at least one token, found none")
        if len(prompt) + canvas > model.context:
            raise RequestError(
                f"expected prompt and canvas within {model.context} positions, found a prompt of "
                f"{len(prompt)} tokens and a canvas of {canvas}. Use a shorter prompt or a smaller canvas."
            )


@runtime_checkable
class MaskedModel(DiffusionModel, Protocol):
    """A model that predicts masked tokens, all in one pass."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""

    @property
    def mask_id(self) -> int:
        """The token of positions that are not committed."""

    @property
    def schedule(self) -> Schedule:
        """How its published sampler spreads commits over the steps and the canvas."""

    @property
    def ends(self) -> Tensor:
        """The end markers `eos_ids`, int64 [E], on its device."""

    def without_unusable(self, logits: Tensor) -> Tensor:
        """Logits [N, V] with -inf for the mask token and all others that no answer has."""

    def batch(self, prompts: Sequence[Sequence[int]], canvas: int) -> Batch:
        """Pads prompts to one length; raises RequestError for an empty one and for one that is too long."""

    def logits(self, batch: Batch, canvas: Tensor, wanted: Tensor) -> Tensor:
        """Logits [N, V] of the N positions that `wanted` (bool [B, C]) marks, in row-major order."""


@dataclass(frozen=True)
class Batch:
    """Padded prompts, to the left of canvases of equal size; constant from step to step.

    prompt:    int64 [B, P], padded on the left.
    positions: int64 [B, P + C], or None where all prompts are equally long.
    mask:      [B, 1, 1, P + C], 0 for tokens and the lowest number for padding, added to attention scores;
               or None.
    """

    prompt: Tensor
    positions: Tensor | None
    mask: Tensor | None

    @classmethod
    def of(
        cls, model: MaskedModel, prompts: Sequence[Sequence[int]], canvas: int, dtype: torch.dtype
    ) -> Self:
        """Pads prompts to one length; dtype: of the mask. Raises what `require_room` does."""
        import torch

        require_room(model, prompts, canvas)
        longest = max(len(prompt) for prompt in prompts)
        pads = [longest - len(prompt) for prompt in prompts]
        rows = [[model.mask_id] * pad + list(prompt) for pad, prompt in zip(pads, prompts, strict=True)]
        tokens = torch.tensor(rows, dtype=torch.long, device=model.device)
        if not any(pads):
            return cls(tokens, None, None)
        place = torch.arange(longest + canvas, device=model.device)
        offset = torch.tensor(pads, device=model.device)[:, None]
        mask = torch.zeros(len(pads), longest + canvas, dtype=dtype, device=model.device)
        # Additive and float: a boolean mask is read as "add 0 or 1" by the eager implementation.
        mask.masked_fill_(place < offset, torch.finfo(dtype).min)
        return cls(tokens, (place - offset).clamp(min=0), mask[:, None, None, :])
