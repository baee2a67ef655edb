"""The cloud side: runs a masked diffusion language model and makes payloads of what it has so far.

    from cloud_anchor import DenoiseConfig, Pipeline

    pipeline = Pipeline.open("tiny")
    (result,) = pipeline.make(["Name the river of Torden."], DenoiseConfig(canvas=128, steps=12))
    data = pipeline.payload(result)

The names of `__all__` are imported on first use, so that importing the package, or a command's `--help`, does
not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports

if TYPE_CHECKING:
    from cloud_anchor.errors import (
        CheckpointError,
        CloudError,
        NothingToSendError,
        OutputError,
        RequestError,
    )
    from cloud_anchor.pipeline import Pipeline, PipelineResult
    from cloud_anchor.sampling.config import DenoiseConfig, steps_for
    from cloud_anchor.sampling.denoised import Denoised
    from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk
    from cloud_anchor.selection.select import Selection

__all__ = [
    "CheckpointError",
    "CloudError",
    "DenoiseConfig",
    "Denoised",
    "EdgeAwareConfig",
    "EdgeWalk",
    "NothingToSendError",
    "OutputError",
    "Pipeline",
    "PipelineResult",
    "RequestError",
    "Selection",
    "steps_for",
]

_MODULES = {
    "DenoiseConfig": "sampling.config",
    "Denoised": "sampling.denoised",
    "EdgeAwareConfig": "selection.edge_aware",
    "EdgeWalk": "selection.edge_aware",
    "Pipeline": "pipeline",
    "PipelineResult": "pipeline",
    "Selection": "selection.select",
    "steps_for": "sampling.config",
}
"""Modules of the names that are not in `errors`."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports unknown names
    __getattr__ = lazy_exports(__name__, {name: _MODULES.get(name, "errors") for name in __all__})
