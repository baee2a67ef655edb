"""Command-line options of a pair and of the questions that it is asked, declared once for the suite.

Responsible for their names, help and defaults: questions are those of the shipped pair that is measured. Not
responsible for reading them (see `items`) or for loading models (see `cloud_anchor.options`, `loading`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cloud_anchor import options
from cloud_anchor.errors import RequestError
from cloud_anchor.shipped import world_of
from lab.questions.items import Item, load_items


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Adds --model and --edge, a diffusion model and the bundle of its device (see `shipped.bundle_of`)."""
    options.add_model(parser, only=("model", "edge"))


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
