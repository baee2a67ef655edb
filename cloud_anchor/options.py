"""Command-line options of models, sampling and selection, declared once for every command.

Responsible for their names, help and defaults, and their resolution into DenoiseConfig and Selection. Not
responsible for what a command does with these. Importing it does not import torch: `--help` and a mistyped
option are answered at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloud_anchor.pipeline import Pipeline
    from cloud_anchor.sampling.config import CommitRule, DenoiseConfig
    from cloud_anchor.selection.select import Selection
    from common.progress import Progress


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


@dataclass(frozen=True)
class Option:
    """One option: its flag, what argparse is told about it, and a hidden flag of earlier versions."""

    flag: str
    settings: Mapping[str, Any]
    alias: str | None = None


def _option(flag: str, alias: str | None = None, **settings: Any) -> Option:
    return Option(flag, settings, alias)


MODEL: Mapping[str, Option] = {
    "model": _option("--model", default="tiny", help="tiny, testbed, a folder, a hub name (default: tiny)"),
    "edge": _option(
        "--edge",
        type=Path,
        metavar="BUNDLE",
        help="the device's bundle, a folder or a shipped one's name: its template and contract (default: "
        "the shipped pair's)",
    ),
    "edge_checkpoint": _option(
        "--edge-checkpoint",
        type=Path,
        metavar="FOLDER",
        help="the checkpoint that the bundle was made from: score selections with it in PyTorch, on --device",
    ),
    "device": _option("--device", help="cuda, cpu (default: cuda where there is one)"),
    "dtype": _option(
        "--dtype",
        help="float32, bfloat16, float16 (default: bfloat16 on cuda, and large models where the processor "
        "computes it or float32 does not fit; else float32)",
    ),
}

SAMPLING: Mapping[str, Option] = {
    "fraction": _option(
        "--fraction", type=float, default=0.1, help="share of the steps to run (default 0.1)"
    ),
    "steps": _option("--steps", type=int, help="steps to run, instead of a share"),
    "total_steps": _option(
        "--total-steps", type=int, help="steps of a full run (default: the model's, or 128)"
    ),
    "canvas": _option("--canvas", type=int, help="response positions (default: the model's, or 256)"),
    "order": _option(
        "--order",
        alias="--alg",
        default="confidence",
        help="order of commits: confidence (default), or Dream's origin, maskgit_plus, topk_margin, entropy",
    ),
    "temperature": _option(
        "--temperature", type=float, default=0.0, help="0 takes the most probable token (default)"
    ),
    "top_p": _option("--top-p", type=float, help="nucleus filter"),
    "top_k": _option("--top-k", type=int, help="keep this many tokens"),
    "order_temperature": _option(
        "--order-temperature",
        alias="--alg-temp",
        type=float,
        metavar="T",
        help="draw positions from softmax(score / T) instead of taking the highest scores",
    ),
    "schedule": _option("--schedule", default="dream", help="dream (default) or cosine"),
    "commit": _option(
        "--commit",
        alias="--commit-above",
        type=_commit_rule,
        default="auto",
        metavar="RULE",
        help="tokens committed per step: quota, the schedule's number; a probability, all tokens from it on; "
        "eb, entropy-bounded; with an edge model apd, left to right, and product, of both models' "
        "probabilities; auto (default), quota for select paper and for orders other than confidence, else "
        "0.9 until the answer is complete",
    ),
    "commit_weight": _option(
        "--commit-weight",
        type=float,
        metavar="W",
        help="apd: the diffusion model's part R (default 0.7); product: the edge model's exponent (default "
        "0.3)",
    ),
    "commit_probability": _option(
        "--commit-probability",
        type=float,
        default=0.9,
        metavar="P",
        help="product: the probability from which tokens commit (default 0.9)",
    ),
    "entropy_bound": _option(
        "--entropy-bound",
        type=float,
        default=0.1,
        metavar="NATS",
        help="eb: how much entropy may commit at once beyond the largest (default 0.1)",
    ),
    "stop": _option(
        "--stop", metavar="RULE", help="end an answer before: complete, prophet, plateau, entropy"
    ),
    "prefix_every": _option(
        "--prefix-every",
        type=int,
        default=0,
        metavar="N",
        help="run the prompt in every Nth step only: faster for long prompts, and approximate (default: "
        "every step)",
    ),
    "seed": _option("--seed", type=int, default=0),
}

SELECTION: Mapping[str, Option] = {
    "select": _option(
        "--select",
        metavar="NAME",
        help="paper: committed tokens; confidence: predictions from --threshold on; edge-aware: those of "
        "them that the edge model would not predict by itself (default where there is an edge model)",
    ),
    "threshold": _option(
        "--threshold", type=float, metavar="P", help="probability from which a prediction binds (default 0.3)"
    ),
    "guard": _option(
        "--guard", type=float, metavar="LOGITS", help="send tokens the edge model prefers by less than this"
    ),
    "edge_passes": _option("--edge-passes", type=int, metavar="N", help="most passes of the edge model"),
    "max_bytes": _option("--max-bytes", type=int, metavar="N", help="keep the anchors that help most"),
}


def _add(
    parser: argparse.ArgumentParser, title: str, options: Mapping[str, Option], only: Collection[str] | None
) -> argparse._ArgumentGroup:
    group = parser.add_argument_group(title)
    chosen = {name: option for name, option in options.items() if only is None or name in only}
    exclusive = group.add_mutually_exclusive_group() if chosen.keys() >= {"fraction", "steps"} else group
    for name, option in chosen.items():
        target = exclusive if name in ("fraction", "steps") else group
        target.add_argument(option.flag, dest=name, **option.settings)
        if option.alias:
            hidden = {**option.settings, "help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
            group.add_argument(option.alias, dest=name, **hidden)
    return group


def add_model(
    parser: argparse.ArgumentParser, only: Collection[str] | None = None
) -> argparse._ArgumentGroup:
    """Adds the options of `Pipeline.open`; returns their group. only: their names, as attributes."""
    return _add(parser, "model", MODEL, only)


def add_sampling(parser: argparse.ArgumentParser, only: Collection[str] | None = None) -> None:
    """Adds the options of `DenoiseConfig`. only: their names, as attributes; default all."""
    _add(parser, "denoising", SAMPLING, only)


def add_selection(parser: argparse.ArgumentParser, only: Collection[str] | None = None) -> None:
    """Adds the options of `Selection`. only: their names, as attributes; default all."""
    _add(parser, "selection", SELECTION, only)


def open_pipeline(
    args: argparse.Namespace, *, compiled: bool = False, answers: int = 1, progress: Progress | None = None
) -> Pipeline:
    """The models that the options name; arguments and errors are those of `Pipeline.open`."""
    from cloud_anchor.pipeline import Pipeline

    names = {name: getattr(args, name) for name in MODEL if name != "model"}
    return Pipeline.open(
        args.model, **names, compiled=compiled, answers=answers, canvas=args.canvas, progress=progress
    )


def denoise_config(args: argparse.Namespace, plan: DenoiseConfig) -> DenoiseConfig:
    """The sampling options; canvas and steps of the plan apply where none are given. Raises RequestError."""
    from cloud_anchor.sampling.config import DenoiseConfig, steps_for

    total = plan.total_steps if args.total_steps is None else args.total_steps
    more = ("prefix_every", "seed", "commit_weight", "commit_probability", "entropy_bound")
    same = ("order", "temperature", "top_p", "top_k", "order_temperature", "schedule", "commit", "stop")
    return DenoiseConfig(
        canvas=plan.canvas if args.canvas is None else args.canvas,
        total_steps=total,
        steps=args.steps if args.steps is not None else steps_for(args.fraction, total),
        **{name: getattr(args, name) for name in (*same, *more)},
    )


def selection(args: argparse.Namespace) -> Selection:
    """The selection options; raises RequestError."""
    from cloud_anchor.selection.edge_aware import EdgeAwareConfig
    from cloud_anchor.selection.select import Selection

    given = {"threshold": args.threshold, "guard": args.guard, "max_passes": args.edge_passes}
    config = EdgeAwareConfig(**{name: value for name, value in given.items() if value is not None})
    return Selection(args.select, config, args.max_bytes)


def check(args: argparse.Namespace) -> None:
    """Raises RequestError for a wrong option, before a model is loaded."""
    from cloud_anchor.sampling.config import MAX_STEPS, DenoiseConfig

    selection(args)
    # The model's plan is not known yet; this one allows every number of steps.
    denoise_config(args, DenoiseConfig(total_steps=MAX_STEPS))
