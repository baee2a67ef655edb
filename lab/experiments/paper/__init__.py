"""The paper's experiments, in the order of the report."""

from __future__ import annotations

from lab.drafting import spec_diff
from lab.experiment import Experiment
from lab.experiments.paper import (
    ablation,
    adaptive,
    bridge,
    budget,
    commit_order,
    ends,
    fills,
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

PHASES: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        commit_order,
        fills,
        sizes,
        ablation,
        gaps,
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
"""The paper's experiments by name."""
