"""The pairs of models that ship with this package: names and folders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_anchor.errors import RequestError
from edge_runtime.bundle.bundle import BUNDLES

_WEIGHTS = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class ShippedPair:
    """A diffusion model and its edge model.

    weights:  folder of the checkpoints, one folder each. model: name of the diffusion model among them.
    bundle:   folder of the edge model's bundle.
    thinker:  name of the autoregressive checkpoint that is to be a target of drafts or a larger edge model.
    """

    weights: Path
    model: str
    bundle: Path
    thinker: str

    @property
    def checkpoint(self) -> Path:
        """Folder of the diffusion model."""
        return self.weights / self.model


def _pair(name: str, thinker: str) -> ShippedPair:
    weights = _WEIGHTS / name
    return ShippedPair(weights, f"{name}-dream", BUNDLES / f"{name}-qwen", thinker)


TAUGHT = "{}-taught"
"""Name of a pair whose diffusion model, of the same name, was taught to answer in few passes."""

_TESTBED = _pair("testbed", "testbed-causal")

PAIRS: Mapping[str, ShippedPair] = {
    "tiny": _pair("tiny", "tiny-qwen-large"),
    "testbed": _TESTBED,
    TAUGHT.format("testbed"): replace(_TESTBED, model=TAUGHT.format("testbed")),
}

DEFAULT_MODEL = "testbed"
"""The pair that commands run unless another is named."""


def world_of(name: str) -> str | None:
    """The pair that the models of a shipped pair were trained as; None for another name."""
    return next((world for world in PAIRS if name in (world, TAUGHT.format(world))), None)


SUBJECTS = "subjects.json"
"""In a pair's folder: what its diffusion model was trained on."""


def names_a_subject(model: str, question: str) -> bool:
    """Whether a question names what a shipped pair was trained on; True for a model that lists no subjects.

    For demonstrations: the models themselves answer anything.
    """
    file = PAIRS[model].weights / SUBJECTS if model in PAIRS else None
    if file is None or not file.is_file():
        return True
    names = "|".join(map(re.escape, json.loads(file.read_text("utf-8"))))
    return re.search(rf"(?<!\w)(?:{names})(?:s|es)?(?!\w)", question, re.IGNORECASE) is not None


def shipped_checkpoint(name: str) -> Path | None:
    """The folder of a shipped checkpoint, by its own name or its pair's; None for another name.

    The folder of a pair's name may be missing: tiny comes with the laboratory, and in the checkout.
    """
    if name in PAIRS:
        return PAIRS[name].checkpoint
    folders = [] if "/" in name else [pair.weights / name for pair in PAIRS.values()]
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def bundle_of(model: str, edge: Path | None) -> Path:
    """The bundle that is given, else the shipped pair's; raises RequestError where there is neither."""
    if edge is not None:
        return edge
    if model not in PAIRS:
        raise RequestError(f"{model}: expected the bundle of its edge model (--edge), found none")
    return PAIRS[model].bundle
