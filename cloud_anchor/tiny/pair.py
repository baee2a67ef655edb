"""The shipped pair, loaded: the diffusion model, the edge bundle, and what both call a prompt.

Knows where the two are and how they are put together. Does not know what is asked of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloud_anchor.model.checkpoint import find_checkpoint, load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.prompt_form import PromptForm, prompt_form
from cloud_anchor.sampling.config import DenoiseConfig
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.decode.forced import FillOptions, FillStats, Token, fill
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet

FULL_RUN = DenoiseConfig(canvas=128, total_steps=128)
"""How tiny-dream answers: a step for each of 128 positions, by unfiltered confidence."""


@dataclass(frozen=True)
class Pair:
    """tiny-dream and tiny-qwen, with one tokenizer."""

    dream: DreamModel
    form: PromptForm
    edge: EdgeRuntime

    @classmethod
    def load(cls, model: str = "tiny", bundle: Path = SHIPPED, threads: int | None = None) -> Pair:
        """Raises CheckpointError, EdgeError or ContractMismatchError, in words for people."""
        edge = EdgeRuntime.open(bundle, threads=threads)
        dream = load_model(model, device="cpu")
        return cls(dream, prompt_form(dream, find_checkpoint(model), edge.bundle), edge)

    def fill(self, prompt_ids: list[int], anchors: AnchorSet) -> tuple[list[Token], FillStats]:
        """The edge's tokens, and what they cost."""
        stats = FillStats()
        return list(
            fill(self.edge.engine, prompt_ids, anchors, FillOptions(score_anchors=False), stats)
        ), stats

    def text(self, ids: list[int]) -> str:
        return self.form.tokenizer.decode(ids)
