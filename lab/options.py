"""The options that every experiment has: which models, which questions, which plan.

Not responsible for loading models (see `loading`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloud_anchor import shipped
from cloud_anchor.shipped import PAIRS
from common.cli import option
from edge_runtime.commands import positive

FIXTURE = "tiny"
"""The pair that is measured unless another is named."""


@dataclass(frozen=True)
class NoOptions:
    """Of an experiment that has none of its own."""


@dataclass(frozen=True)
class Options:
    """The options of every experiment."""

    output: Path = option(
        Path(), "results folder; run again to continue", flags=("-o", "--output"), required=True
    )
    model: str = option(FIXTURE, f"diffusion model: {', '.join(PAIRS)}, a folder, a hub name")
    edge: tuple[str, ...] = option(
        (),
        "edge models, the main one first: names or folders of bundles (default: the shipped pair's)",
        metavar="MODEL",
    )
    thinker: str | None = option(
        None,
        "autoregressive checkpoint that specdiff drafts for (default: the shipped pair's own, or "
        "testbed-causal beside the model's folder)",
        metavar="CHECKPOINT",
    )
    data: tuple[str, ...] = option(
        (),
        "sources of the questions, in turn: tiny, testbed, testbed:KIND, or gsm8k, mmlu, arc, humaneval, "
        "each with =FILE.jsonl (default: the shipped pair's own questions)",
        metavar="SOURCE",
    )
    prompts: int | None = option(None, "how many questions (default: the experiment's, or 200)", positive)
    seed: int = option(0, "of the choice of prompts, the sampler and the controls")
    canvas: int | None = option(None, "response positions (default: the model's, or 256)", kind=int)
    total_steps: int | None = option(None, "steps of a full run (default: the model's, or 128)", kind=int)
    device: str | None = option(None, "cuda, cpu (default: cuda where there is one)")
    dtype: str | None = option(None, "of the diffusion model: float32, bfloat16 (default: float32 on a CPU)")
    variant: str | None = option(None, "of the edge models' bundles (default: their own)")
    threads: int | None = option(None, "of the edge models (default: the processor's fast cores)", kind=int)

    @property
    def edges(self) -> list[str]:
        """The named edge models, else that of the shipped pair."""
        return list(self.edge) or [PAIRS[world_of(self.model)].bundle.name]

    @property
    def sources(self) -> list[str]:
        """The named sources, else that of the shipped pair."""
        return list(self.data) or [world_of(self.model)]


def world_of(model: str) -> str:
    """The name of the world whose questions a model is asked: a shipped pair's own, else the fixture's."""
    return shipped.world_of(model) or FIXTURE
