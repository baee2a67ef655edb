"""Options of the laboratory: declared once as fields of a dataclass, with their help beside their default.

Responsible for the options that every experiment has (which models, which questions, which plan) and for
those of several experiments in one parser. Not responsible for loading models (see `loading`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from cloud_anchor import shipped
from cloud_anchor.errors import RequestError
from cloud_anchor.shipped import PAIRS
from common.cli import option

FIXTURE = "tiny"
"""The pair that is measured unless another is named."""


@dataclass(frozen=True)
class NoOptions:
    """Of an experiment that has none of its own."""


@dataclass(frozen=True)
class Options:
    """The options of every experiment."""

    output: Path = field(
        default=Path(),
        metadata={
            "help": "results folder; run again to continue",
            "type": Path,
            "flags": ("-o", "--output"),
            "required": True,
        },
    )
    model: str = option(FIXTURE, f"diffusion model: {', '.join(PAIRS)}, a folder, a hub name")
    edge: tuple[str, ...] = option(
        (),
        "edge models, the main one first: names or folders of bundles (default: the shipped pair's)",
        metavar="MODEL",
    )
    thinker: str | None = option(
        None,
        "autoregressive checkpoint for the bridge, the Thinker and specdiff; the first two decide nothing "
        "where it is right no more often than the edge model alone (default: the shipped pair's own, or "
        "testbed-causal beside the model's folder)",
        metavar="CHECKPOINT",
    )
    data: tuple[str, ...] = option(
        (),
        "sources of the questions, in turn: tiny, testbed, testbed:KIND, or gsm8k, mmlu, arc, humaneval, "
        "each with =FILE.jsonl (default: the shipped pair's own questions)",
        metavar="SOURCE",
    )
    prompts: int | None = option(None, "how many questions", kind=int, metavar="N")
    seed: int = option(0, "of the choice of prompts, the sampler and the controls")
    canvas: int | None = option(None, "response positions (default: the model's, or 256)", kind=int)
    total_steps: int | None = option(None, "steps of a full run (default: the model's, or 128)", kind=int)
    device: str | None = option(None, "cuda, cpu (default: cuda where there is one)")
    dtype: str | None = option(None, "of the diffusion model: float32, bfloat16 (default: float32 on a CPU)")
    variant: str | None = option(None, "of the edge models' bundles (default: their own)")
    threads: int | None = option(None, "of the edge models (default: the processor's fast cores)", kind=int)

    def __post_init__(self) -> None:
        require_at_least(self, 1, "prompts")

    @property
    def edges(self) -> list[str]:
        """The named edge models, else that of the shipped pair."""
        return list(self.edge) or [PAIRS[world_of(self.model)].bundle.name]

    @property
    def sources(self) -> list[str]:
        """The named sources, else that of the shipped pair."""
        return list(self.data) or [world_of(self.model)]


def require_at_least(options: object, least: int, *names: str) -> None:
    """Raises RequestError for a number among these options that is given and lower."""
    for name in names:
        if (value := getattr(options, name)) is not None and value < least:
            raise RequestError(f"--{name.replace('_', '-')}: expected at least {least}, found {value}")


def add_options(parser: argparse._ActionsContainer, kind: type, defaults: Mapping[str, Any] = {}) -> None:
    """Adds the fields of a dataclass of options; one that is not given is left out of the result.

    defaults: by field, what its help is to give instead of the dataclass's own.
    """
    for each in fields(kind):
        _add(parser, each, defaults.get(each.name, each.default))


def _add(parser: argparse._ActionsContainer, each: Field[Any], default: Any) -> None:
    settings = dict(each.metadata)
    says, kind = settings.pop("help"), settings.pop("type")
    flags = settings.pop("flags", (f"--{each.name.replace('_', '-')}",))
    if each.default is False:
        settings["action"] = "store_true"
    else:
        several = isinstance(each.default, tuple)
        examples = each.default if isinstance(each.default, tuple) else (each.default,)
        settings["type"] = kind or next((type(one) for one in examples if one is not None), str)
        if several:
            settings["nargs"] = "+"
        if default is not None and default != () and not settings.get("required"):
            shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
            says = f"{says} (default: {shown})"
    parser.add_argument(*flags, dest=each.name, default=argparse.SUPPRESS, help=says, **settings)


def given(kind: type, found: Mapping[str, Any]) -> dict[str, Any]:
    """The parsed values of a dataclass's fields, lists as tuples."""
    names = {each.name for each in fields(kind)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
        if name in names
    }


def world_of(model: str) -> str:
    """The name of the world whose questions a model is asked: a shipped pair's own, else the fixture's."""
    return shipped.world_of(model) or FIXTURE
