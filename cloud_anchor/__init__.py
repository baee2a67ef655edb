"""The cloud side: runs a masked diffusion language model and makes payloads of what it has so far.

    from cloud_anchor import DenoiseConfig, Pipeline

    pipeline = Pipeline.open("testbed")
    (result,) = pipeline.make(["What is the capital of Japan?"], DenoiseConfig(canvas=192, steps=19))
    data = pipeline.payload(result)

The names of `__all__` are imported on first use, so that importing the package, or a command's `--help`, does
not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports
from common.version import __version__ as __version__

if TYPE_CHECKING:
    from cloud_anchor.errors import CheckpointError as CheckpointError
    from cloud_anchor.errors import CloudError as CloudError
    from cloud_anchor.errors import NothingToSendError as NothingToSendError
    from cloud_anchor.errors import RequestError as RequestError
    from cloud_anchor.pipeline import Pipeline as Pipeline
    from cloud_anchor.pipeline import PipelineResult as PipelineResult
    from cloud_anchor.sampling.config import DenoiseConfig as DenoiseConfig
    from cloud_anchor.sampling.config import steps_for as steps_for
    from cloud_anchor.sampling.denoised import Denoised as Denoised
    from cloud_anchor.selection.edge_aware import EdgeAwareConfig as EdgeAwareConfig
    from cloud_anchor.selection.edge_aware import EdgeWalk as EdgeWalk
    from cloud_anchor.selection.select import Selection as Selection
else:
    __all__, __getattr__ = lazy_exports(__name__, __file__)
