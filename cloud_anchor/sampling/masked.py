"""Answers of a model that predicts masked tokens, denoised by this sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_anchor.sampling.state import State
from cloud_anchor.sampling.step import advance
from cloud_anchor.sampling.stops import STOPS


class MaskedAnswers(State):
    """A state as `protocol.Answers`."""

    def advance(self) -> None:
        advance(self)

    def done(self, limits: Sequence[int]) -> Mapping[int, str]:
        stop = self.config.stop
        done = {
            row: "steps"
            for row, pair in enumerate(zip(self.steps, limits, strict=True))
            if pair[0] >= pair[1]
        }
        if stop is not None:
            done = {row: stop for row, stops in enumerate(STOPS[stop](self.view()).tolist()) if stops} | done
        open_ = (self.ids == self.model.mask_id).any(1).tolist()
        done = {row: "finished" for row, left in enumerate(open_) if not left} | done
        return dict(sorted(done.items()))
