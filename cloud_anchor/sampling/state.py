"""Sampler state: canvases, commit steps and the last forward pass of the answers in a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import Batch, MaskedModel
from cloud_anchor.sampling.stops import StepPredictions, StepView, likely_length


@dataclass(frozen=True)
class ForwardPass:
    """One forward pass over the masked positions of a batch.

    logits: [N, V] of the masked positions, in row-major order. masked: bool [B, C].
    open: bool [B, C], the masked positions that may commit in this step.
    shares: float32 [B], the share of the open positions that the schedule commits.
    """

    logits: Tensor
    masked: Tensor
    open: Tensor
    shares: Tensor

    @property
    def last(self) -> Tensor:
        """Rows whose schedule commits everything that is left, bool [B]."""
        return (self.shares >= 1).to(self.masked.device)

    def spread(self, values: Tensor, base: Tensor) -> Tensor:
        """Values [N] scattered to the masked positions of [B, C], `base` elsewhere."""
        return base.to(values.dtype).masked_scatter(self.masked, values)

    def probability(self, model: MaskedModel, tokens: Tensor, where: Tensor) -> Tensor:
        """The diffusion model's probability, float32 [M], of the M tokens of `tokens` [B, C] at `where`.

        Of the unfiltered distribution. where: bool [B, C], masked positions only.
        """
        logits = model.without_unusable(self.logits[where[self.masked]]).float()
        return (logits.gather(-1, tokens[where][:, None])[:, 0] - logits.logsumexp(-1)).exp()

    def ending(self, model: MaskedModel) -> Tensor:
        """The probability of an end marker, float32 [N]."""
        logits = model.without_unusable(self.logits).float()
        return (logits[:, model.ends].logsumexp(-1) - logits.logsumexp(-1)).exp()

    def lengths(self, model: MaskedModel, ids: Tensor) -> Tensor:
        """The most likely length of each answer, int64 [B]; `ids` [B, C] is the canvas that this pass saw."""
        end = torch.isin(ids, model.ends) & ~self.masked
        return likely_length(self.masked, end, self.spread(self.ending(model), end))

    def predictions(self, model: MaskedModel, ids: Tensor) -> StepPredictions:
        """The predictions at every position; `ids` [B, C] is the canvas after this pass's commits."""
        logits = model.without_unusable(self.logits).float()
        norm = logits.logsumexp(-1)
        first, second = logits.topk(2).values.unbind(-1)
        top, likeliest = logits.index_fill(-1, model.ends, -torch.inf).max(-1)
        confidence = (top - norm).exp()
        is_end = torch.isin(ids, model.ends).float()
        still = ids == model.mask_id

        def settle(values: Tensor, committed: Tensor) -> Tensor:
            return torch.where(still, self.spread(values, committed), committed)

        return StepPredictions(
            ids=settle(likeliest, ids),
            confidence=settle(confidence, torch.ones_like(is_end)),
            ending=settle(self.ending(model), is_end),
            gap=settle(first - second, torch.zeros_like(is_end)),
        )


_LISTS = ("prompts", "steps", "generators")
_TENSORS = ("ids", "when", "sure")
"""Fields of a state that have one entry for each row."""


@dataclass
class State:
    """Answers being denoised, one per row. Advanced in place.

    ids:   int64 [B, C], canvas tokens. when: int32 [B, C], the step that committed each, 0 where masked
           or pinned.
    sure:  float32 [B, C], the diffusion model's probability of each committed token in the step that
           committed it; 0 elsewhere.
    steps: steps run per row. Rows of one state may be at different steps.
    last:  the forward pass of the last step, until the next one begins.
    batch: the padded prompts; made by the first step after rows were joined or selected.
    """

    model: MaskedModel
    config: DenoiseConfig
    prompts: list[tuple[int, ...]]
    ids: Tensor
    when: Tensor
    sure: Tensor
    steps: list[int]
    generators: list[torch.Generator]
    last: ForwardPass | None = None
    batch: Batch | None = None

    @classmethod
    def start(cls, model: MaskedModel, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> Self:
        """The state before the first step: a canvas of mask tokens per prompt."""
        shape = (len(prompts), config.canvas)
        return cls(
            model,
            config,
            prompts=[tuple(prompt) for prompt in prompts],
            ids=torch.full(shape, model.mask_id, dtype=torch.long, device=model.device),
            when=torch.zeros(shape, dtype=torch.int32, device=model.device),
            sure=torch.zeros(shape, device=model.device),
            steps=[0] * len(prompts),
            generators=[torch.Generator(model.device).manual_seed(config.seed) for _ in prompts],
        )

    def select_rows(self, rows: Sequence[int]) -> Self:
        """The state of these rows, without the last pass; shares their generators."""
        index = torch.tensor(list(rows), dtype=torch.long, device=self.ids.device)
        chosen: dict[str, Any] = {name: [getattr(self, name)[row] for row in rows] for name in _LISTS}
        chosen |= {name: getattr(self, name)[index] for name in _TENSORS}
        return replace(self, **chosen, last=None, batch=None)

    def join(self, other: Self) -> Self:
        """The rows of both states, without the last pass; the canvases must have the same length."""
        both: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _LISTS}
        both |= {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in _TENSORS}
        return replace(self, **both, last=None, batch=None)

    def pin(self, row: int, tokens: Mapping[int, int]) -> None:
        """Puts tokens, by position, on a row's canvas: the next pass sees them, and they stay.

        They are no commits: their step in `when` is 0.
        """
        self.ids, self.when, self.sure = self.ids.clone(), self.when.clone(), self.sure.clone()
        places = torch.tensor(list(tokens), dtype=torch.long, device=self.ids.device)
        self.ids[row, places] = torch.tensor(list(tokens.values()), device=self.ids.device)
        self.when[row, places], self.sure[row, places] = 0, 0.0

    def predictions(self) -> StepPredictions:
        """The last pass's predictions; raises RequestError before the first step of these rows."""
        if self.last is None:
            raise RequestError("predictions: expected a state after a step, found one before")
        return self.last.predictions(self.model, self.ids)

    def view(self) -> StepView:
        """The input of stop rules."""
        masked = self.ids == self.model.mask_id
        return StepView(
            masked=masked,
            end=torch.isin(self.ids, self.model.ends) & ~masked,
            when=self.when,
            step=torch.tensor(self.steps, device=masked.device),
            total=self.config.total_steps,
            predict=self.predictions,
        )

    def results(self, reasons: Mapping[int, str] | None = None) -> list[Denoised]:
        """The rows in `reasons` (default: all) as plain values; a reason is the row's `stopped_by`."""
        if reasons is None:
            reasons = dict.fromkeys(range(len(self.prompts)), "steps")
        view = self.view()
        predictions = view.predictions
        columns = {
            "ids": self.ids,
            "when": self.when,
            "predicted": predictions.ids,
            "confidence": predictions.confidence,
            "certainty": torch.where(self.when > 0, self.sure, predictions.confidence),
            "ending": predictions.ending,
            "predicted_length": view.length,
        }
        values = {name: column.tolist() for name, column in columns.items()}
        return [
            Denoised(
                prompt_ids=self.prompts[row],
                **{name: column[row] for name, column in values.items()},
                steps=self.steps[row],
                total_steps=self.config.total_steps,
                mask_id=self.model.mask_id,
                eos_ids=self.model.eos_ids,
                stopped_by=reason,
            )
            for row, reason in reasons.items()
        ]
