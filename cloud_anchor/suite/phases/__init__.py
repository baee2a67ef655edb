"""Every experiment, in the order of the report."""

from __future__ import annotations

from cloud_anchor.suite.phases import (
    ablation,
    bridge,
    commits,
    ends,
    fills,
    gaps,
    lookahead,
    pearl,
    quantised,
    sending,
    sizes,
    template,
    thinker,
    timing,
)
from cloud_anchor.suite.phases.base import About, Phase

__all__ = ["PHASES", "About", "Phase"]

PHASES: dict[str, Phase] = {
    module.PHASE.name: module.PHASE
    for module in (
        commits,
        fills,
        sizes,
        ablation,
        gaps,
        lookahead,
        pearl,
        ends,
        sending,
        timing,
        quantised,
        template,
        bridge,
        thinker,
    )
}
"""By the name that --phases takes."""
