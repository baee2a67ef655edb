"""The table of variants a bundle can hold: storage of weights, operators, bounds of the figures.

Responsible for the table. Not responsible for writing a graph (`decoder`) or measuring it (`verify`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from convert.decoder import DialectName
from convert.errors import OptionError
from convert.rotary import rotary_bytes
from convert.source import CheckpointShape, DecoderShape
from convert.verify import Thresholds
from convert.weights import Blockwise, Dynamic, Floating, WeightFormat


@dataclass(frozen=True)
class VariantRecipe:
    """One row of the table.

    bytes_per_weight: for estimates of size, block scales included.
    thresholds:       bounds of the figures unless the user gives others.
    about:            one line for the command's help.
    """

    dialect: DialectName
    weights: WeightFormat
    bytes_per_weight: float
    thresholds: Thresholds
    about: str

    def planned_bytes(self, shape: CheckpointShape, context: int) -> int:
        """Estimated size of the variant's files in bytes."""
        tables = rotary_bytes(shape, context) if isinstance(shape, DecoderShape) else 0
        return int(shape.parameters * self.bytes_per_weight) + tables + (1 << 18)


RECIPES: dict[str, VariantRecipe] = {
    "fp32": VariantRecipe(
        "fused",
        Floating(),
        4.0,
        Thresholds(top1=1.0, mean_kl=1e-6, max_delta=0.01, greedy=1.0),
        "float32, ONNX Runtime's operators: the reference",
    ),
    "fp16": VariantRecipe(
        "portable",
        Floating(half=True),
        2.0,
        Thresholds(top1=0.99, mean_kl=1e-4, greedy=0.9),
        "half-precision storage, float32 arithmetic, standard operators: any ONNX runtime",
    ),
    "int8": VariantRecipe(
        "fused",
        Blockwise(8),
        1.0 + 4 / 32,
        Thresholds(top1=0.95, mean_kl=0.02, greedy=0.5),
        "8 bits in blocks of 32, tied embedding: the default",
    ),
    "int8-dynamic": VariantRecipe(
        "fused",
        Dynamic(),
        1.0 + 4 / 32,
        Thresholds(top1=0.9, mean_kl=0.1, greedy=0.3),
        "8 bits, activations quantised per chunk: faster on long prompts, less exact",
    ),
    "int4": VariantRecipe(
        "fused",
        Blockwise(4),
        0.5 + 4 / 32,
        Thresholds(top1=0.7, mean_kl=0.5),
        "4 bits in blocks of 32, tied embedding: the smallest",
    ),
}

_PREFERENCE = ("int8", "int4", "int8-dynamic", "fp32", "fp16")


def default_variant(names: tuple[str, ...]) -> str:
    """The variant of a bundle that is used unless another is named."""
    return next(name for name in _PREFERENCE if name in names)


def checked_names(names: tuple[str, ...], known: Collection[str] = tuple(RECIPES)) -> tuple[str, ...]:
    """The names without repetitions; raises OptionError for none, or for one that is not known."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise OptionError(
            f"variants: expected some of {', '.join(known)}, found {unknown[0] if unknown else 'none'!r}."
        )
    return tuple(dict.fromkeys(names))
