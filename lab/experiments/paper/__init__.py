"""The paper's experiments, in the order of the report."""

from __future__ import annotations

from importlib import import_module

from lab.drafting import spec_diff
from lab.experiment import Experiment

_MODULES = """
    commit_order fills sizes ablation gaps pearl budget adaptive pivotal ends sending resilience
    timing quantised template_prompting
    """.split()

PHASES: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (*(import_module(f"{__name__}.{name}") for name in _MODULES), spec_diff)
}
"""The paper's experiments by name."""
