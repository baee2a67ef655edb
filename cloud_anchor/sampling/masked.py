"""Answers of a model that predicts masked tokens, denoised by this sampler.

Responsible for the `Answers` of every `MaskedModel`. Not responsible for what a step does (see `step`) or for
its tensors (see `state`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.state import State
from cloud_anchor.sampling.step import advance
from cloud_anchor.sampling.stops import STOPS


@dataclass(frozen=True)
class MaskedAnswers:
    """The answers of one state; see `protocol.Answers`."""

    model: MaskedModel
    config: DenoiseConfig
    state: State

    @classmethod
    def start(
        cls, model: MaskedModel, prompts: Sequence[Sequence[int]], config: DenoiseConfig
    ) -> MaskedAnswers:
        return cls(model, config, State.start(model, prompts, config))

    @property
    def steps(self) -> Sequence[int]:
        return self.state.steps

    def advance(self) -> None:
        advance(self.model, self.state, self.config)

    def done(self, limits: Sequence[int]) -> Mapping[int, str]:
        state, config = self.state, self.config
        pairs = zip(state.steps, limits, strict=True)
        done = {row: "steps" for row, (step, limit) in enumerate(pairs) if step >= limit}
        if config.stop is not None:
            rule = STOPS[config.stop](state.view(self.model, config)).tolist()
            done = {row: config.stop for row, stop in enumerate(rule) if stop} | done
        open_ = (state.ids == self.model.mask_id).any(1).tolist()
        done = {row: "finished" for row, left in enumerate(open_) if not left} | done
        return dict(sorted(done.items()))

    def results(self, reasons: Mapping[int, str]) -> list[Denoised]:
        return self.state.results(self.model, self.config, reasons)

    def select_rows(self, rows: Sequence[int]) -> MaskedAnswers:
        return replace(self, state=self.state.select_rows(rows))

    def join(self, other: MaskedAnswers) -> MaskedAnswers:
        return replace(self, state=self.state.join(other.state))
