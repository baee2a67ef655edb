"""Command-line options of models, denoising and selection, declared once for `anchor` and `serve`.

Responsible for their names, help and defaults, and for what they resolve to. Not responsible for what a
command does with it. Importing it does not import torch: `--help` and a mistyped option are answered at once.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS
from common.cli import CommandParser

if TYPE_CHECKING:  # these bring torch along
    from cloud_anchor.pipeline import Pipeline
    from cloud_anchor.sampling.config import CommitRule, DenoiseConfig
    from cloud_anchor.selection.select import Selection
    from common.progress import Progress


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of `Pipeline.open`."""

    model: str
    edge: Path | None
    edge_checkpoint: Path | None
    device: str | None
    dtype: str | None


@dataclass(frozen=True, kw_only=True)
class DenoiseOptions:
    """The options of `DenoiseConfig`; None stands for what the model's plan says."""

    fraction: float
    steps: int | None
    total_steps: int | None
    canvas: int | None
    order: str
    temperature: float
    top_p: float | None
    top_k: int | None
    order_temperature: float | None
    schedule: str
    commit: CommitRule
    commit_weight: float | None
    commit_probability: float
    entropy_bound: float
    stop: str | None
    prefix_every: int
    seed: int

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
        return DenoiseConfig(**given)


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """The options of `Selection`; None stands for its defaults."""

    select: str | None
    threshold: float | None
    guard: float | None
    edge_passes: int | None
    max_bytes: int | None

    def selection(self) -> Selection:
        """The selection that they describe; raises RequestError."""
        from cloud_anchor.selection.edge_aware import EdgeAwareConfig
        from cloud_anchor.selection.select import Selection

        given: dict[str, Any] = {
            "threshold": self.threshold,
            "guard": self.guard,
            "max_passes": self.edge_passes,
        }
        config = EdgeAwareConfig(**{name: value for name, value in given.items() if value is not None})
        return Selection(self.select, config, self.max_bytes)


@dataclass(frozen=True, kw_only=True)
class PipelineOptions(ModelOptions, DenoiseOptions, SelectionOptions):
    """The options of `add_options`: everything that a pipeline needs to make payloads."""

    def check(self) -> None:
        """Raises RequestError for a wrong option, before a model is loaded."""
        from cloud_anchor.sampling.config import MAX_STEPS, DenoiseConfig

        self.selection()
        # The model's plan is not known yet; this one allows every number of steps.
        self.config(DenoiseConfig(total_steps=MAX_STEPS))

    def open_pipeline(
        self, *, compiled: bool = False, answers: int = 1, progress: Progress | None = None
    ) -> Pipeline:
        """The models that they name; arguments and errors are those of `Pipeline.open`."""
        from cloud_anchor.pipeline import Pipeline

        models = {each.name: getattr(self, each.name) for each in fields(ModelOptions)}
        return Pipeline.open(
            **models, compiled=compiled, answers=answers, canvas=self.canvas, progress=progress
        )


def add_options(parser: CommandParser) -> None:
    """Adds the options of `PipelineOptions`: five for everyone, the others in groups for experts."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help=f"{', '.join(PAIRS)}, a folder or a hub name (default: {DEFAULT_MODEL})",
    )
    parser.add_argument(
        "--edge",
        type=Path,
        metavar="BUNDLE",
        help="bundle of the device's model, a folder or name (default: the shipped pair's)",
    )
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument(
        "--fraction", type=float, default=0.1, metavar="X", help="share of the steps to run (default 0.1)"
    )
    steps.add_argument("--steps", type=int, metavar="N", help="steps to run, instead of a share")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="keep the anchors that help most")
    _add_model(parser.expert_group("models", "Where and how the models run."))
    _add_denoising(parser.expert_group("denoising", "How the diffusion model writes."))
    _add_commits(
        parser.expert_group(
            "guided commits", "Commit rules that ask the edge model too, in one more pass of it per step."
        )
    )
    _add_selection(parser.expert_group("selection", "Which tokens are sent."))


def _add_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--edge-checkpoint",
        type=Path,
        metavar="FOLDER",
        help="the checkpoint that the bundle was made from: score selections with it in PyTorch, on --device",
    )
    group.add_argument("--device", help="cuda, cpu (default: cuda where there is one)")
    group.add_argument(
        "--dtype",
        help="float32, bfloat16, float16 (default: bfloat16 on cuda, and large models where the processor "
        "computes it or float32 does not fit; else float32)",
    )


def _add_denoising(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--total-steps", type=int, metavar="N", help="steps of a full run (default: the model's, or 128)"
    )
    group.add_argument(
        "--canvas", type=int, metavar="N", help="response positions (default: the model's, or 256)"
    )
    group.add_argument(
        "--order",
        default="confidence",
        metavar="NAME",
        help="order of commits: confidence (default), or Dream's origin, maskgit_plus, topk_margin, entropy",
    )
    group.add_argument(
        "--order-temperature",
        type=float,
        metavar="T",
        help="draw positions from softmax(score / T) instead of taking the highest scores",
    )
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0: the most probable token (default)"
    )
    group.add_argument("--top-p", type=float, metavar="P", help="nucleus filter")
    group.add_argument("--top-k", type=int, metavar="N", help="keep this many tokens")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of each answer's draws (default 0)")
    group.add_argument("--schedule", default="dream", metavar="NAME", help="dream (default) or cosine")
    group.add_argument(
        "--commit",
        type=_commit_rule,
        default="auto",
        metavar="RULE",
        help="tokens committed per step: quota, the schedule's number; a probability, all tokens from it on; "
        "eb, entropy-bounded; apd and product, see guided commits; auto (default), quota for select paper "
        "and for orders other than confidence, else 0.9 until the answer is complete",
    )
    group.add_argument(
        "--entropy-bound",
        type=float,
        default=0.1,
        metavar="NATS",
        help="eb: how much entropy may commit at once beyond the largest (default 0.1)",
    )
    group.add_argument(
        "--stop", metavar="RULE", help="end an answer early: complete, prophet, plateau, entropy"
    )
    group.add_argument(
        "--prefix-every",
        type=int,
        default=0,
        metavar="N",
        help="run the prompt in every Nth step only: faster for long prompts, and approximate (default: "
        "every step)",
    )


def _commit_rule(text: str) -> CommitRule:
    match text:
        case "auto" | "quota" | "eb" | "apd" | "product":
            return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected auto, quota, eb, apd, product or a probability, found {text!r}"
        ) from None


def _add_commits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--commit-weight",
        type=float,
        metavar="W",
        help="apd, left to right: the diffusion model's part R (default 0.7); product, of both models' "
        "probabilities: the edge model's exponent (default 0.3)",
    )
    group.add_argument(
        "--commit-probability",
        type=float,
        default=0.9,
        metavar="P",
        help="product: the probability from which tokens commit (default 0.9)",
    )


def _add_selection(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--select",
        metavar="NAME",
        help="paper: committed tokens; confidence: predictions from --threshold on; edge-aware: those of "
        "them that the edge model would not predict by itself (default where there is an edge model)",
    )
    group.add_argument(
        "--threshold", type=float, metavar="P", help="probability from which a prediction binds (default 0.3)"
    )
    group.add_argument(
        "--guard", type=float, metavar="LOGITS", help="send tokens the edge model prefers by less than this"
    )
    group.add_argument("--edge-passes", type=int, metavar="N", help="most passes of the edge model")
