"""Command-line options of models, denoising and selection, declared once for `anchor` and `serve`.

Responsible for their names, help and defaults, and for what they resolve to. Not responsible for what a
command does with it. Importing it does not import torch: `--help` and a mistyped option are answered at once.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_anchor.errors import RequestError
from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS
from common import files
from common.cli import option

if TYPE_CHECKING:  # these bring torch along
    from cloud_anchor.pipeline import Pipeline
    from cloud_anchor.sampling.config import CommitRule, DenoiseConfig
    from cloud_anchor.selection.select import Selection
    from common.progress import Progress


BACKEND_KEY = "CLOUD_ANCHOR_BACKEND_KEY"
"""Environment variable of the key of a server that runs the model."""

GROUPS = {
    "models": "Where and how the models run.",
    "denoising": "How the diffusion model writes.",
    "selection": "Which tokens are sent.",
}
"""The groups of options for experts, with their descriptions."""


def _commit_rule(text: str) -> CommitRule:
    match text:
        case "auto" | "quota":
            return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected auto, quota or a probability, found {text!r}") from None


_model = partial(option, group="models")
_run = partial(option, group="denoising")
_selection = partial(option, group="selection")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of `Pipeline.open`."""

    model: str = option(DEFAULT_MODEL, f"{', '.join(PAIRS)}, a folder or a hub name (default: %(default)s)")
    edge: Path | None = option(
        None,
        "bundle of the device's model, a folder or name (default: the shipped pair's)",
        Path,
        metavar="BUNDLE",
    )
    edge_checkpoint: Path | None = option(
        None,
        "the checkpoint that the bundle was made from: score selections with it in PyTorch, on --device",
        Path,
        metavar="FOLDER",
        group="models",
    )
    backend: str | None = _model(
        None,
        "a server that runs the model, vllm:http://host:8000; of --model the tokenizer is read then",
        metavar="SERVER",
    )
    backend_key: Path | None = option(
        None,
        f"the server's key, in a file (default: ${BACKEND_KEY}, else none)",
        Path,
        metavar="FILE",
        group="models",
    )
    device: str | None = _model(None, "cuda, cpu (default: cuda where there is one)")
    dtype: str | None = _model(
        None,
        "float32, bfloat16, float16 (default: bfloat16 on cuda, and large models where the processor "
        "computes it or float32 does not fit; else float32)",
    )


@dataclass(frozen=True, kw_only=True)
class DenoiseOptions:
    """The options of `DenoiseConfig`; None stands for what the model's plan says."""

    fraction: float = option(0.1, "share of the steps to run (default 0.1)", metavar="X", either="steps")
    steps: int | None = option(None, "steps to run, instead of a share", int, metavar="N", either="steps")
    total_steps: int | None = _run(
        None, "steps of a full run (default: the model's, or 128)", int, metavar="N"
    )
    canvas: int | None = _run(None, "response positions (default: the model's, or 256)", int, metavar="N")
    order: str = _run(
        "confidence",
        "order of commits: confidence (default), or Dream's origin, maskgit_plus, topk_margin, entropy",
        metavar="NAME",
    )
    temperature: float = _run(0.0, "0: the most probable token (default)", metavar="T")
    top_p: float | None = _run(None, "nucleus filter", float, metavar="P")
    seed: int = _run(0, "of each answer's draws (default 0)", metavar="N")
    commit: CommitRule = option(
        "auto",
        "tokens committed per step: quota, the schedule's number; a probability, all tokens from it on; "
        "auto (default), quota for select paper "
        "and for orders other than confidence, else the model's probability, or 0.9, until the answer is "
        "complete",
        _commit_rule,
        metavar="RULE",
        group="denoising",
    )
    stop: str | None = _run(None, "end an answer early: complete, prophet, plateau", metavar="RULE")

    def config(self, plan: DenoiseConfig) -> DenoiseConfig:
        """The run that they describe, on a model with this plan; raises RequestError."""
        from cloud_anchor.sampling.config import DenoiseConfig, steps_for

        given = {each.name: getattr(self, each.name) for each in fields(DenoiseOptions)}
        fraction = given.pop("fraction")
        for name in ("canvas", "total_steps"):
            if given[name] is None:
                given[name] = getattr(plan, name)
        if self.steps is None:
            given["steps"] = steps_for(fraction, given["total_steps"])
        return DenoiseConfig(**given, parallel=plan.parallel)


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """The options of `Selection`; None stands for its defaults."""

    max_bytes: int | None = option(None, "keep the anchors that help most", int, metavar="N")
    select: str | None = _selection(
        None,
        "paper: committed tokens; confidence: predictions from --threshold on; edge-aware: those of "
        "them that the edge model would not predict by itself (default where there is an edge model)",
        metavar="NAME",
    )
    threshold: float | None = _selection(
        None, "probability from which a prediction binds (default 0.3)", float, metavar="P"
    )
    guard: float | None = _selection(
        None, "send tokens the edge model prefers by less than this", float, metavar="LOGITS"
    )
    edge_passes: int | None = _selection(None, "most passes of the edge model", int, metavar="N")

    def selection(self) -> Selection:
        """The selection that they describe; raises RequestError."""
        from cloud_anchor.selection.edge_aware import EdgeAwareConfig
        from cloud_anchor.selection.select import Selection

        limits = {"threshold": self.threshold, "guard": self.guard}
        given: dict[str, Any] = {**limits, "max_passes": self.edge_passes}
        config = EdgeAwareConfig(**{name: value for name, value in given.items() if value is not None})
        return Selection(self.select, config, self.max_bytes)


@dataclass(frozen=True, kw_only=True)
class PipelineOptions(ModelOptions, DenoiseOptions, SelectionOptions):
    """Everything that a pipeline needs to make payloads: five options for everyone, the others in GROUPS."""

    def check(self) -> None:
        """Raises RequestError for a wrong option, before a model is loaded."""
        from cloud_anchor.sampling.config import MAX_STEPS, DenoiseConfig

        self.selection()
        # The model's plan is not known yet; this one allows every number of steps.
        self.config(DenoiseConfig(total_steps=MAX_STEPS))

    def server_key(self) -> str | None:
        """The key of the server that runs the model, of file or environment; raises RequestError."""
        if self.backend_key is None:
            return os.environ.get(BACKEND_KEY) or None
        return files.read_text(self.backend_key, RequestError).strip()

    def open_pipeline(
        self, *, compiled: bool = False, answers: int = 1, progress: Progress | None = None
    ) -> Pipeline:
        """The models that they name; arguments and errors are those of `Pipeline.open`."""
        from cloud_anchor.pipeline import Pipeline

        models = {each.name: getattr(self, each.name) for each in fields(ModelOptions)}
        models["backend_key"] = self.server_key() if self.backend else None
        models |= {"compiled": compiled, "answers": answers, "canvas": self.canvas}
        return Pipeline.open(**models, progress=progress)
