"""Command-line options of models, denoising and selection, declared once for `anchor` and `serve`.

Responsible for their names, help and defaults, and for what they resolve to. Not responsible for what a
command does with it; what has no option here is in `DenoiseConfig` and `EdgeAwareConfig`. Importing it does
not import torch: `--help` and a mistyped option are answered at once.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS
from common.cli import option

if TYPE_CHECKING:  # these bring torch along
    from cloud_anchor.pipeline import Pipeline
    from cloud_anchor.sampling.config import CommitRule, DenoiseConfig
    from cloud_anchor.selection.select import Selection
    from common.progress import Progress


BACKEND_KEY = "CLOUD_ANCHOR_BACKEND_KEY"
"""Environment variable of the key of a server that runs the model."""


def _commit_rule(text: str) -> CommitRule:
    match text:
        case "auto" | "quota":
            return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected auto, quota or a probability, found {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of `Pipeline.open`."""

    model: str = option(
        DEFAULT_MODEL, f"{', '.join(PAIRS)}, a folder, a .gguf file or a hub name (default: %(default)s)"
    )
    edge: Path | None = option(None, "the device's bundle (default: the shipped pair's)", metavar="BUNDLE")
    backend: str | None = option(
        None, f"vllm:URL or openai:URL (any chat server) runs it (key: ${BACKEND_KEY})", metavar="SERVER"
    )
    device: str | None = option(None, "cuda, cpu, or a .gguf file's layers on a GPU (default: cuda if any)")
    dtype: str | None = option(None, "float32, bfloat16, float16 (default: by the device)")


@dataclass(frozen=True, kw_only=True)
class DenoiseOptions:
    """The options of `DenoiseConfig`; None stands for what the model's plan says."""

    fraction: float | None = option(
        None, "share of the steps (default 0.1; of a chat server 1)", metavar="X", either="steps"
    )
    steps: int | None = option(None, "steps to run, instead of a share", either="steps")
    total_steps: int | None = option(None, "of a full run (default: the model's, or 128)")
    canvas: int | None = option(None, "response positions (default: the model's, or 256)")
    order: str = option("confidence", "of commits, or entropy, maskgit_plus", metavar="NAME")
    temperature: float = option(0.0, "0: the most probable token (default)", metavar="T")
    seed: int = option(0, "of each answer's draws (default 0)")
    commit: CommitRule = option(
        "auto",
        "quota: as many a step as the schedule says; or all from a probability on (default: by --select)",
        _commit_rule,
        metavar="RULE",
    )
    stop: str | None = option(None, "end an answer early: complete, prophet or plateau", metavar="RULE")

    def config(self, plan: DenoiseConfig) -> DenoiseConfig:
        """The run that they describe, on a model with this plan; raises RequestError."""
        from cloud_anchor.sampling.config import steps_for

        said = {each.name: getattr(self, each.name) for each in fields(DenoiseOptions)}
        given = {name: value for name, value in said.items() if value is not None}
        usual = 0.1 if plan.steps is None else 1.0
        steps = steps_for(given.pop("fraction", usual), given.get("total_steps", plan.total_steps))
        return replace(plan, **{"steps": steps, **given})


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """The options of `Selection`; None stands for its defaults."""

    select: str | None = option(
        None,
        "paper: committed tokens; confidence: predictions from --threshold on; edge-aware: of them what the "
        "edge model would not write (default)",
        metavar="NAME",
    )
    threshold: float | None = option(None, "from which a prediction binds (default 0.3)", metavar="P")
    max_bytes: int | None = option(None, "keep the anchors that help most")

    def selection(self) -> Selection:
        """The selection that they describe; raises RequestError."""
        from cloud_anchor.selection.edge_aware import EdgeAwareConfig
        from cloud_anchor.selection.select import Selection

        config = EdgeAwareConfig() if self.threshold is None else EdgeAwareConfig(self.threshold)
        return Selection(self.select, config, self.max_bytes)


@dataclass(frozen=True, kw_only=True)
class PipelineOptions(ModelOptions, DenoiseOptions, SelectionOptions):
    """Everything that a pipeline needs to make payloads."""

    def check(self) -> None:
        """Raises RequestError for a wrong option, before a model is loaded."""
        from cloud_anchor.sampling.config import MAX_STEPS, DenoiseConfig

        self.selection()
        # The model's plan is not known yet; this one allows every number of steps.
        self.config(DenoiseConfig(total_steps=MAX_STEPS))

    def open_pipeline(self, *, answers: int = 1, progress: Progress | None = None) -> Pipeline:
        """The models that they name; arguments and errors are those of `Pipeline.open`."""
        from cloud_anchor.pipeline import Pipeline

        models = {each.name: getattr(self, each.name) for each in fields(ModelOptions)}
        key = (os.environ.get(BACKEND_KEY) or None) if self.backend else None
        return Pipeline.open(
            **models, backend_key=key, answers=answers, canvas=self.canvas, progress=progress
        )
