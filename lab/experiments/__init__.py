"""The experiments by name.

A module of this folder has one, `EXPERIMENT`, under its own name, and is imported when it is asked for. A few
lie beside what they measure. `run` also takes the file of an experiment from outside the tree.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules

from cloud_anchor.errors import RequestError
from lab.experiment import Experiment

PAPER = "paper"
"""The name of all of the paper's experiments."""

ELSEWHERE = {
    "codec_bench": "lab.formats.codec_bench",
    "losses": "lab.drafting.experiment",
    "number_formats": "lab.formats.number_formats",
    "question_bytes": "lab.formats.question_bytes",
    "teaching": "lab.distil.experiment",
}
"""The modules of experiments that are not in this folder."""


def every() -> Iterator[Experiment]:
    """All experiments, those of the paper first."""
    from lab.experiments.paper import PHASES

    yield from PHASES.values()
    here = (module.name for module in iter_modules(__path__))
    for name in sorted({*here, *ELSEWHERE}):
        if found := _open(name):
            yield found


def _open(name: str) -> Experiment | None:
    """The experiment of this name or in this file, None where there is none."""
    try:
        if name.endswith(".py"):
            found: Experiment | None = runpy.run_path(name).get("EXPERIMENT")
            return found
        if not name.isidentifier():
            return None
        return getattr(import_module(ELSEWHERE.get(name, f"{__name__}.{name}")), "EXPERIMENT", None)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != f"{__name__}.{name}":
            raise
        return None


def groups(names: Sequence[str]) -> list[tuple[str, list[Experiment]]]:
    """The experiments of these names as they are measured: those of the paper together, each other alone.

    Raises RequestError for an unknown name.
    """
    from lab.experiments.paper import PHASES

    papers = [each for name, each in PHASES.items() if PAPER in names or name in names]
    found = [(PAPER, papers)] if papers else []
    for name in dict.fromkeys(names):
        if name == PAPER or name in PHASES:
            continue
        one = _open(name)
        if one is None:
            known = ", ".join([PAPER, *(each.name for each in every())])
            raise RequestError(f"experiment: expected some of {known}, or a FILE.py with one, found {name}")
        found.append((one.name, [one]))
    return found
