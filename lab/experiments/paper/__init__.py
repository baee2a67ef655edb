"""Every experiment, in the order of the report."""

from __future__ import annotations

from lab.drafting import spec_diff
from lab.experiments.paper import (
    ablation,
    adaptive,
    bridge,
    budget,
    commit_order,
    ends,
    fills,
    gap_lookahead,
    gaps,
    influence,
    pearl,
    pivotal,
    quantised,
    resilience,
    sending,
    sizes,
    template_prompting,
    thinker,
    timing,
)
from lab.experiments.phase import About, Phase

__all__ = ["PHASES", "About", "Phase"]

PHASES: dict[str, Phase] = {
    module.PHASE.name: module.PHASE
    for module in (
        commit_order,
        fills,
        sizes,
        ablation,
        gaps,
        gap_lookahead,
        pearl,
        budget,
        adaptive,
        pivotal,
        influence,
        ends,
        sending,
        resilience,
        timing,
        quantised,
        template_prompting,
        bridge,
        thinker,
        spec_diff,
    )
}
"""Phases by their name on the command line (--phases)."""
