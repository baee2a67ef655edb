"""The experiments by name.

A module of this folder has one, `EXPERIMENT`, under its own name, and is imported when it is asked for. A few
lie beside what they measure. `run` also takes the file of an experiment from outside the tree.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

from cloud_anchor.errors import RequestError
from lab.experiment import Experiment

PAPER = "paper"
"""The name of all of the paper's experiments."""

ELSEWHERE = {
    "codec_bench": "lab.formats.codec_bench",
    "int4": "lab.benches.int4",
    "recorded": "lab.published.recorded",
    "sampler": "lab.benches.sampler",
    "losses": "lab.drafting.experiment",
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
    found: Experiment | None = None
    place = ELSEWHERE.get(name, f"{__name__}.{name}")
    if name.endswith(".py") and Path(name).is_file():
        found = runpy.run_path(name).get("EXPERIMENT")
    elif name.isidentifier() and find_spec(place):
        found = getattr(import_module(place), "EXPERIMENT", None)
    return found


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Some of the paper's experiments, which are measured together, or one other.

    Raises RequestError for an unknown name, and for others that are to be measured together.
    """
    from lab.experiments.paper import PHASES

    if names and set(names) <= {PAPER, *PHASES}:
        return [each for name, each in PHASES.items() if PAPER in names or name in names]
    one = _open(names[0]) if len(names) == 1 else None
    if one is None:
        known = ", ".join(each.name for each in every())
        raise RequestError(
            f"experiment: expected {PAPER}, or one of {known}, or a FILE.py with one, found "
            f"{' '.join(names) or 'none'}"
        )
    return [one]
