"""The table of variants a bundle can hold: storage of weights, operators, bounds of the figures.

Responsible for the table. Not responsible for writing a graph (`decoder`) or measuring it (`verify`).
"""

from __future__ import annotations

from dataclasses import dataclass

from convert.check.verify import Thresholds
from convert.errors import OptionError
from convert.graph.decoder import DialectName
from convert.graph.weights import Blockwise, Floating, WeightFormat
from convert.source.checkpoint import DecoderShape
from convert.source.rotary import rotary_bytes


@dataclass(frozen=True)
class VariantRecipe:
    """One row of the table.

    bytes_per_weight: for estimates of size, block scales included.
    thresholds:       bounds of the figures unless the user gives others.
    about:            one line for the command's help.
    calibrated:       the layers' matrices are quantised by GPTQ on calibration texts, instead of rounded.
    """

    dialect: DialectName
    weights: WeightFormat
    bytes_per_weight: float
    thresholds: Thresholds
    about: str
    calibrated: bool = False

    def planned_bytes(self, shape: DecoderShape, context: int) -> int:
        """Estimated size of the variant's files in bytes."""
        tables = rotary_bytes(shape, context) * (2 if shape.window else 1)
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
        "half-precision storage, standard operators: any ONNX runtime",
    ),
    "int8": VariantRecipe(
        "fused",
        Blockwise(8),
        1.0 + 4 / 32,
        Thresholds(top1=0.95, mean_kl=0.02, greedy=0.5),
        "8 bits in blocks of 32, tied embedding: the default",
    ),
    "int4": VariantRecipe(
        "fused",
        Blockwise(4, 64),
        0.5 + 4 / 64,
        Thresholds(top1=0.7, mean_kl=0.5),
        "4 bits in blocks of 64 by GPTQ, tied embedding: the smallest",
        calibrated=True,
    ),
}

_PREFERENCE = ("int8", "int4", "fp32", "fp16")


def default_variant(names: tuple[str, ...]) -> str:
    """The variant of a bundle that is used unless another is named."""
    return next(name for name in _PREFERENCE if name in names)


def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without repetitions; raises OptionError for none, or for one that is not known."""
    unknown = [name for name in names if name not in RECIPES]
    if unknown or not names:
        raise OptionError(
            f"variants: expected some of {', '.join(RECIPES)}, found {unknown[0] if unknown else 'none'!r}."
        )
    return tuple(dict.fromkeys(names))
