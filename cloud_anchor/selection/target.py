"""Settings for a target fidelity, from a table of measurements (see `lab.experiments.frontier`).

Responsible for the table's form and the choice from it. Not responsible for measurements. A choice is about
means: the mean over the table's prompts is at least the target, as far as their number can tell. It says
nothing about a single prompt's answer, or about prompts of another kind.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError, require

MAX_BYTES = 4 << 20
"""A table is a few kilobytes."""


@dataclass(frozen=True)
class Setting:
    """One setting of the pipeline, with its measured fidelity and size.

    fraction: share of total_steps diffusion steps. select, threshold: see `select.Selection`.
    f1: mean word F1 against the full run; low: the lower end of its 95% interval. bytes: mean payload size.
    """

    fraction: float
    total_steps: int
    select: str
    threshold: float
    codec: str
    f1: float
    low: float
    bytes: float

    @classmethod
    def from_json(cls, data: Any) -> Setting:
        kinds = {"int": int, "str": str, "float": float}
        return cls(**{each.name: kinds[str(each.type)](data[each.name]) for each in fields(cls)})


def read_table(path: Path, fingerprint: str) -> list[Setting]:
    """The settings of a table measured with the edge model of this fingerprint (hex).

    Raises RequestError for any other file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(f"{path}: expected a table of at most {MAX_BYTES} bytes, found more")
        table = json.loads(path.read_bytes())
        settings = [Setting.from_json(row) for row in table["settings"]]
        measured = str(table["ranking"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RequestError(
            f"{path}: expected a table of settings (python -m lab run frontier -o FOLDER), found: {error!r}"
        ) from error
    if measured != fingerprint:
        raise RequestError(
            f"{path}: expected a table measured with edge model {fingerprint[:12]}, found one of "
            f"{measured[:12]}. Measure this pair, or use its table (--frontier)."
        )
    return settings


def cheapest(settings: Sequence[Setting], target: float, codecs: Collection[str]) -> Setting:
    """The cheapest setting whose mean F1 is, with 97.5% confidence, at least the target.

    Diffusion steps cost most, so the fewest steps come first, then the fewest bytes. Raises RequestError
    where no setting with one of these codecs reaches the target.
    """
    require("target F1", 0 <= target <= 1, "0 to 1", target)
    usable = [setting for setting in settings if setting.codec in codecs]
    good = [setting for setting in usable if setting.low >= target]
    if good:
        return min(good, key=lambda setting: (setting.fraction * setting.total_steps, setting.bytes))
    if not usable:
        raise RequestError(
            f"target F1: expected settings with codec {' or '.join(sorted(codecs))} in the table, found none"
        )
    best = max(usable, key=lambda setting: setting.low)
    raise RequestError(
        f"target F1: expected at most {best.low:.3f}, which is measured for a fraction of {best.fraction} "
        f"(mean {best.f1:.3f}), found {target}. Run all steps (--fraction 1), or lower the target."
    )
