"""The experiments by name. A module has one, `EXPERIMENT`, and is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from cloud_anchor.errors import RequestError
from lab.experiment import Experiment

PAPER = "paper"
"""The name of all of the paper's experiments."""

MODULES = {
    "agreement": "lab.experiments.agreement",
    "codec_bench": "lab.formats.codec_bench",
    "frontier": "lab.experiments.frontier",
    "hardness": "lab.experiments.hardness",
    "losses": "lab.drafting.experiment",
    "number_formats": "lab.formats.number_formats",
    "one_frame": "lab.experiments.one_frame",
    "passes": "lab.experiments.passes",
    "question_bytes": "lab.formats.question_bytes",
    "rivals": "lab.rivals.experiment",
    "unknowns": "lab.experiments.unknowns",
}
"""The module of every experiment that is not one of the paper's."""


def every() -> Iterator[Experiment]:
    """All experiments, those of the paper first."""
    from lab.experiments.paper import PHASES

    yield from PHASES.values()
    yield from (_open(name) for name in MODULES)


def _open(name: str) -> Experiment:
    found: Experiment = import_module(MODULES[name]).EXPERIMENT
    return found


def groups(names: Sequence[str]) -> list[tuple[str, list[Experiment]]]:
    """The experiments of these names as they are measured: those of the paper together, each other alone.

    Raises RequestError for an unknown name.
    """
    from lab.experiments.paper import PHASES

    known = [PAPER, *PHASES, *MODULES]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RequestError(f"experiment: expected some of {', '.join(known)}, found {', '.join(unknown)}")
    papers = [each for name, each in PHASES.items() if PAPER in names or name in names]
    found = [(PAPER, papers)] if papers else []
    return found + [(name, [_open(name)]) for name in MODULES if name in names]
