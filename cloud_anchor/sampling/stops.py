"""Stop rules and the most likely length of an answer, from commits and predictions, one answer per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

TINY = 1e-9
"""Lower bound of probabilities in sums of logarithms."""


@dataclass(frozen=True)
class StepPredictions:
    """Predictions of one forward pass at every position, [B, C].

    ids, confidence, ending: as `predicted`, `confidence` and `ending` of Denoised.
    gap: difference of the two largest logits, 0 where committed.
    """

    ids: Tensor
    confidence: Tensor
    ending: Tensor
    gap: Tensor


@dataclass(frozen=True)
class StepView:
    """State of a batch after a step, [B, C] unless noted.

    masked:  positions that are not committed. end: positions with a committed end marker.
    when:    step that committed each token, 0 where masked.
    step:    int64 [B], steps run; total: steps planned.
    predict: computes the predictions of the step's pass, which not every rule needs.
    """

    masked: Tensor
    end: Tensor
    when: Tensor
    step: Tensor
    total: int
    predict: Callable[[], StepPredictions]

    @cached_property
    def predictions(self) -> StepPredictions:
        return self.predict()

    @cached_property
    def length(self) -> Tensor:
        """The most likely length of each answer, int64 [B]."""
        return likely_length(self.masked, self.end, self.predictions.ending)

    @property
    def inside(self) -> Tensor:
        """Positions before the most likely end, bool [B, C]."""
        return torch.arange(self.masked.shape[1], device=self.masked.device) < self.length[:, None]


Stop = Callable[[StepView], Tensor]
"""From a view to the rows that may stop, bool [B]."""


def likely_length(masked: Tensor, end: Tensor, ending: Tensor) -> Tensor:
    """The most likely length of each answer, int64 [B], from tensors [B, C]: `masked` and `end` as in
    StepView, `ending` as in StepPredictions.

    The n that maximises prod_{p<n} (1 - ending_p) * prod_{p>=n} ending_p, between the last committed word and
    the first committed end. The first position with ending_p > 1/2 would depend on a single uncertain one.
    """
    size = masked.shape[1]
    places = torch.arange(size + 1, device=masked.device)
    first_end = torch.where(end.any(1), end.int().argmax(1), size)
    word = ~masked & ~end & (places[:size] < first_end[:, None])
    last_word = torch.where(word.any(1), size - word.int().flip(1).argmax(1), 0)
    chance = ending.double().clamp(TINY, 1 - TINY)
    score = ((1 - chance).log() - chance.log()).cumsum(1)
    score = torch.cat([torch.zeros_like(score[:, :1]), score], 1)
    allowed = (places >= last_word[:, None]) & (places <= first_end[:, None])
    return score.masked_fill(~allowed, -torch.inf).argmax(1)


def complete(view: StepView) -> Tensor:
    """Stops where every token up to the first committed end is committed.

    As commits are permanent, the answer equals that of the full run.
    """
    settled = (~view.masked & ~view.end).int().cumprod(1).sum(1)  # words from the start on
    size = view.masked.shape[1]
    at_end = view.end.gather(1, settled.clamp(max=size - 1)[:, None])[:, 0]
    return (settled == size) | at_end


PROPHET_GAPS = ((0.33, 7.5), (0.67, 5.0), (1.0, 2.5))
"""(share of the steps, mean gap that is enough up to it): the published values."""


def prophet(view: StepView) -> Tensor:
    """Stops where the mean gap of the two largest logits, over the open positions of the answer, is large.

    Prophet (Li et al., arXiv 2508.19982, early commit decoding): a gap of 7.5 in the first third of the
    steps, 5 in the second, 2.5 in the last. The rest of the answer is then this step's predictions.
    """
    open_ = view.masked & view.inside
    mean = (view.predictions.gap * open_).sum(1) / open_.sum(1)
    mean = torch.where(open_.any(1), mean, torch.inf)
    progress = view.step / view.total
    enough = torch.full_like(mean, PROPHET_GAPS[-1][1])
    for share, gap in reversed(PROPHET_GAPS[:-1]):
        enough = torch.where(progress < share, gap, enough)
    return mean >= enough


PLATEAU_STEPS = 4
PLATEAU_GROWTH = 0.02


def plateau(view: StepView) -> Tensor:
    """Stops where coverage of the answer grew by less than 2% in the last 4 steps and is at least half.

    Proposed in section 6 of the paper: structural work is done when the commit rate levels off.
    """
    answer = view.inside & ~view.masked
    size = view.length.clamp(min=1)
    recent = answer & (view.when > (view.step - PLATEAU_STEPS)[:, None])
    covered = answer.sum(1) / size
    return (recent.sum(1) / size < PLATEAU_GROWTH) & (covered >= 0.5) & (view.step >= PLATEAU_STEPS)


STOPS: Mapping[str, Stop] = {
    "complete": complete,
    "prophet": prophet,
    "plateau": plateau,
}
