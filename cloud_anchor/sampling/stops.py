"""When to stop before the planned steps are run, and where an unfinished answer most likely ends.

Knows rules over the commits and predictions of a batch, one answer a row. Does not know what stopping
leads to: the answer is then in the predictions, and its anchors in the commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

TINY = 1e-9
"""Probabilities are not taken for smaller than this in sums of logarithms."""


@dataclass(frozen=True)
class Predictions:
    """What a pass said about every position, [B, C].

    ids, confidence, ending: see the fields of Denoised. gap: difference of the two largest logits, 0 where
    committed.
    """

    ids: Tensor
    confidence: Tensor
    ending: Tensor
    gap: Tensor


@dataclass(frozen=True)
class Look:
    """What is known after a step, [B, C] unless said otherwise.

    masked: what is not committed. end: where an end marker is committed.
    when:   step that committed each token, 0 where masked.
    step:   int64 [B], steps run; total: steps planned.
    predict: gives the predictions of the step's pass; they cost something, and not every rule needs them.
    """

    masked: Tensor
    end: Tensor
    when: Tensor
    step: Tensor
    total: int
    predict: Callable[[], Predictions]

    @cached_property
    def predictions(self) -> Predictions:
        return self.predict()

    @cached_property
    def length(self) -> Tensor:
        """Where each answer most likely ends, int64 [B]."""
        return likely_length(self.masked, self.end, self.predictions.ending)

    @property
    def inside(self) -> Tensor:
        """Positions of the answer, as far as it is thought to go."""
        return torch.arange(self.masked.shape[1], device=self.masked.device) < self.length[:, None]


Stop = Callable[[Look], Tensor]
"""Which rows may stop, bool [B]."""


def likely_length(masked: Tensor, end: Tensor, ending: Tensor) -> Tensor:
    """Where each answer most likely ends, int64 [B]; `masked` and `end` as in Look, `ending` as in
    Predictions.

    The n that maximises prod_{p<n} (1 - ending_p) * prod_{p>=n} ending_p: no word after the end and no end
    before it, between the last committed word and the first committed end. The first position where an end is
    likeliest would be fooled by a single doubtful one.
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


def complete(look: Look) -> Tensor:
    """Every token up to the first committed end is committed: what follows cannot change the answer.

    As commits are permanent, this stop loses nothing: the answer is that of the full run.
    """
    settled = (~look.masked & ~look.end).int().cumprod(1).sum(1)  # words from the start on
    size = look.masked.shape[1]
    at_end = look.end.gather(1, settled.clamp(max=size - 1)[:, None])[:, 0]
    return (settled == size) | at_end


PROPHET_GAPS = ((0.33, 7.5), (0.67, 5.0), (1.0, 2.5))
"""Up to this share of the steps, the mean gap that is enough: the published values."""


def prophet(look: Look) -> Tensor:
    """The mean gap between the two largest logits, over what is open of the answer, is large enough.

    Prophet (Li et al., arXiv 2508.19982, early commit decoding): a gap of 7.5 in the first third of the
    steps, 5 in the second, 2.5 in the last. The rest of the answer is then the predictions of this step.
    """
    open_ = look.masked & look.inside
    mean = (look.predictions.gap * open_).sum(1) / open_.sum(1)
    mean = torch.where(open_.any(1), mean, torch.inf)
    progress = look.step / look.total
    enough = torch.full_like(mean, PROPHET_GAPS[-1][1])
    for share, gap in reversed(PROPHET_GAPS[:-1]):
        enough = torch.where(progress < share, gap, enough)
    return mean >= enough


PLATEAU_STEPS = 4
PLATEAU_GROWTH = 0.02


def plateau(look: Look) -> Tensor:
    """Over the last 4 steps coverage of the answer has grown by less than 2%, after half of it was committed.

    The stop that the paper proposes in section 6: structural work is done when the commit rate levels off.
    """
    answer = look.inside & ~look.masked
    size = look.length.clamp(min=1)
    recent = answer & (look.when > (look.step - PLATEAU_STEPS)[:, None])
    covered = answer.sum(1) / size
    return (recent.sum(1) / size < PLATEAU_GROWTH) & (covered >= 0.5) & (look.step >= PLATEAU_STEPS)


STOPS: Mapping[str, Stop] = {"complete": complete, "prophet": prophet, "plateau": plateau}
