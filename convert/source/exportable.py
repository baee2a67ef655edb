"""A checkpoint of any decoder that transformers has, for graphs that are exported instead of built.

Responsible for the sizes that the device needs to know of it. Not responsible for the export (see
`optimum_export`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convert.errors import ArchitectureError, SourceError
from convert.source.checkpoint import CheckpointFolder, CheckpointShape, architecture_of

_INNER = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
"""Names of the width between a layer's two products; four times the hidden size where there is none."""
_POSITIONS = ("max_position_embeddings", "max_seq_len", "seq_length")


@dataclass(frozen=True)
class ExportableShape(CheckpointShape):
    """Sizes of a decoder; weights: number of them in the checkpoint's files."""

    weights: int

    @property
    def parameters(self) -> int:
        return self.weights


class ExportableCheckpoint(CheckpointFolder):
    """An opened checkpoint; raises SourceError or ArchitectureError where it is no decoder of text."""

    shape: ExportableShape

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        weights = sum(math.prod(shape) for _, _, shape in self.stored())
        self.shape = exportable_shape(_configuration(folder), architecture_of(self.config), weights, folder)


def exportable_shape(config: Any, architecture: str, weights: int, folder: Path) -> ExportableShape:
    """The sizes in a configuration of transformers; raises ArchitectureError where one is missing."""
    heads = _size(config, ("num_attention_heads",), folder)
    hidden = _size(config, ("hidden_size",), folder)
    return ExportableShape(
        architecture=architecture,
        hidden_size=hidden,
        num_hidden_layers=_size(config, ("num_hidden_layers",), folder),
        num_attention_heads=heads,
        num_key_value_heads=_size(config, ("num_key_value_heads", "num_kv_heads"), folder, heads),
        head_dim=_size(config, ("head_dim",), folder, hidden // heads),
        intermediate_size=_size(config, _INNER, folder, 4 * hidden),
        vocab_size=_size(config, ("vocab_size",), folder),
        max_position_embeddings=_size(config, _POSITIONS, folder),
        weights=weights,
    )


def _size(config: Any, names: tuple[str, ...], folder: Path, otherwise: int | None = None) -> int:
    """The first of these fields that is a positive integer."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    if otherwise is None:
        raise ArchitectureError(
            f"{folder}: expected the configuration of a decoder with {' or '.join(names)}, found "
            f"{type(config).__name__} without. Only decoders of text are exported."
        )
    return otherwise


def _configuration(folder: Path) -> Any:
    """The parsed config.json as a configuration of transformers; raises SourceError."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # transformers raises anything here
        raise SourceError(
            f"{folder}: expected config.json of a model that transformers has, found: {str(error)[:300]}"
        ) from error
