"""Command-line options of a pair and of the questions that it is asked, declared once for the suite.

Responsible for their names, help and defaults: questions are those of the shipped pair that is measured. Not
responsible for reading them (see `items`) or for loading models (see `loading`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cloud_anchor.errors import RequestError
from cloud_anchor.shipped import PAIRS
from lab.questions.items import Item, load_items

FIXTURE = "tiny"
"""The pair that is measured unless another is named."""


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds --model, a diffusion model."""
    parser.add_argument(
        "--model", default=FIXTURE, help=f"{', '.join(PAIRS)}, a folder, a hub name (default: {FIXTURE})"
    )


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Adds --model and --edge, a diffusion model and the bundle of its device (see `shipped.bundle_of`)."""
    add_model(parser)
    parser.add_argument(
        "--edge",
        type=Path,
        metavar="BUNDLE",
        help="the device's bundle, a folder or a shipped one's name (default: the shipped pair's)",
    )


def add_fraction(parser: argparse.ArgumentParser) -> None:
    """Adds --fraction."""
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the steps to run (default 0.1)")


def world_of(model: str) -> str:
    """The name of the world whose questions a model is asked: a shipped pair's own, else the fixture's."""
    return model if model in PAIRS else FIXTURE


def add_data(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Adds --data, read by `sources`. default: a source, by default that of the measured pair."""
    says = default or "the shipped pair's own questions"
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="SOURCE",
        default=[default] if default else None,
        help="of the questions, in turn: tiny, testbed, testbed:KIND, or gsm8k, mmlu, arc, humaneval, each "
        f"with =FILE.jsonl or from the `datasets` package (default: {says})",
    )


def add_questions(
    parser: argparse.ArgumentParser,
    count: int,
    flags: Sequence[str] = ("--prompts",),
    data: str | None = None,
) -> None:
    """Adds --data, the number of questions and --seed, read by `questions`. data: as `add_data`'s default."""
    add_data(parser, data)
    parser.add_argument(
        *flags, dest="prompts", type=int, default=count, metavar="N", help=f"how many questions ({count})"
    )
    parser.add_argument("--seed", type=int, default=0, help="which questions, and whatever else is drawn (0)")


def sources(args: argparse.Namespace) -> list[str]:
    """The sources that --data names, else that of the pair of --model."""
    return list(args.data or [world_of(args.model)])


def questions(args: argparse.Namespace) -> list[Item]:
    """The questions of `add_questions`; raises RequestError."""
    if args.prompts < 1:
        raise RequestError(f"number of questions: expected at least 1, found {args.prompts}")
    return load_items(sources(args), args.prompts, args.seed)
