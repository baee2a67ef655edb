"""The ways to store weights in 4 bits that `int4_table` compares, and what decides among a model's matrices.

Responsible for the formats by their names, for matrices that several of them share, and for how much each
matrix contributes to the divergence when it alone is quantised. Not responsible for files or for measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from convert.check.verify import divergence
from convert.graph.calibrated import by_gptq
from convert.graph.moments import InputMoments
from convert.graph.nodes import GraphWriter
from convert.graph.quantisation import Blocks
from convert.graph.weights import Bias, Blockwise, Floating, LayerQuantizer, WeightFormat
from convert.source.checkpoint import Checkpoint, FloatArray
from convert.source.original import load_original
from lab.benches.quantisers import hqq, k_quant

REFERENCE = "fp32"
EIGHT = Blockwise(8)

MATRICES = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj": ("self_attn.o_proj",),
    "mlp.gate_proj": ("mlp.gate_proj",),
    "mlp.up_proj": ("mlp.up_proj",),
    "mlp.down_proj": ("mlp.down_proj",),
}
"""A layer's matrices as the graph's builder names them, and transformers' modules that they are made of."""


@dataclass(frozen=True)
class WithTable(Blockwise):
    """Blocks with other formats for some weights.

    table:   of the head, and of the embedding unless that has its own; None for the layers'.
    rows:    of an embedding that is not tied to the head; a look-up costs no time, whatever its format.
    special: of single matrices of the layers, by name.
    """

    table: Blockwise | None = None
    rows: Blockwise | None = None
    special: Mapping[str, Blockwise] = field(default_factory=dict)

    def linear(self, graph: GraphWriter, x: str, name: str, weight: FloatArray, bias: Bias = None) -> str:
        if name in self.special:
            return self.special[name].linear(graph, x, name, weight, bias)
        return super().linear(graph, x, name, weight, bias)

    def embedding(self, graph: GraphWriter, ids: str, weight: FloatArray) -> str:
        own = self.rows or self.table
        return own.embedding(graph, ids, weight) if own else super().embedding(graph, ids, weight)

    def head(self, graph: GraphWriter, x: str, shape: tuple[int, int], weight: FloatArray | None) -> str:
        own = self.table if weight is not None else self.rows or self.table
        return own.head(graph, x, shape, weight) if own else super().head(graph, x, shape, weight)


class KeptBlocks:
    """The layers' matrices by GPTQ, each of one block size quantised once for all formats that have it."""

    def __init__(self, moments: Callable[[], InputMoments]) -> None:
        self._moments = moments
        self._kept: dict[tuple[str, int], Blocks] = {}

    def quantizer(self) -> LayerQuantizer:
        """For one pass over the matrices, in the order of the layers."""
        fresh = by_gptq(self._moments())

        def quantize(name: str, weight: FloatArray, block: int) -> Blocks:
            if (name, block) not in self._kept:
                self._kept[name, block] = fresh(name, weight, block)
            return self._kept[name, block]

        return quantize


def formats(
    quantizer: Callable[[], LayerQuantizer], sensitive: Callable[[float], Sequence[str]]
) -> dict[str, Callable[[], WeightFormat]]:
    """The table's rows of ONNX Runtime.

    quantizer: by GPTQ, called for each of its rows.
    sensitive: names of the most sensitive matrices that make up a share of the layers' weights.
    """

    def plain(block: int, table: Blockwise | None = None) -> WeightFormat:
        return WithTable(4, block, table=table)

    def by(method: Callable[[FloatArray, int], Blocks], block: int) -> WeightFormat:
        return Blockwise(4, block, layers=lambda name, weight, size: method(weight, size))

    def calibrated(
        block: int, table: Blockwise | None = None, rows: Blockwise | None = None, share: float = 0
    ) -> WeightFormat:
        special = dict.fromkeys(sensitive(share), Blockwise(8, block)) if share else {}
        return WithTable(4, block, layers=quantizer(), table=table, rows=rows, special=special)

    return {
        REFERENCE: Floating,
        "int8 32": lambda: EIGHT,
        **{f"symmetric {block}": partial(plain, block) for block in (32, 64, 128)},
        **{f"k-quant {block}": partial(by, k_quant, block) for block in (32, 64, 128)},
        **{f"hqq {block}": partial(by, hqq, block) for block in (32, 64, 128)},
        **{f"gptq {block}": partial(calibrated, block) for block in (32, 64, 128)},
        "symmetric 32, table 64": partial(plain, 32, Blockwise(4, 64)),
        "symmetric 64, table 32": partial(plain, 64, Blockwise(4, 32)),
        "symmetric 32, table int8": partial(plain, 32, EIGHT),
        "symmetric 64, table int8": partial(plain, 64, EIGHT),
        "gptq 64, table 32": partial(calibrated, 64, Blockwise(4, 32)),
        "gptq 64, table int8": partial(calibrated, 64, EIGHT),
        "gptq 128, table int8": partial(calibrated, 128, EIGHT),
        **{
            f"gptq {block}, head {head}, embedding int8": partial(
                calibrated, block, Blockwise(4, head), EIGHT
            )
            for block in (64, 128)
            for head in (32, 64, 128)
        },
        **{
            f"gptq 128, {share}% int8, head {head}, embedding int8": partial(
                calibrated, 128, Blockwise(4, head), EIGHT, share / 100
            )
            for share in (5, 10, 20)
            for head in (32, 64, 128)
        },
    }


def contributions(
    checkpoint: Checkpoint, ids: Sequence[int], quantize: Callable[[str, FloatArray], FloatArray]
) -> Iterator[tuple[str, int, float]]:
    """Each matrix of the layers, its number of weights, and the mean KL divergence on `ids` of the model in
    which it alone is quantised.

    quantize: a matrix [N, K] by its name, to what its storage keeps of it; asked in the order of the layers.
    """
    import torch

    whole = load_original(checkpoint)
    layers = list(whole.model.layers)
    options: list[dict[str, Any]] = []  # what each layer is called with

    def note(states: Any, *_: Any, **given: Any) -> Any:
        options.append(given)
        return states

    def run(states: Any, start: int) -> Iterator[Any]:
        for layer, given in zip(layers[start:], options[start:], strict=True):
            after = layer(states, **given)
            states = after if isinstance(after, torch.Tensor) else after[0]
            yield states

    def logits(states: Any) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = whole.lm_head(whole.model.norm(states))[0].numpy()
        return found

    with torch.inference_mode():
        for layer in layers:
            layer.forward = note
        first = whole.model.get_input_embeddings()(torch.tensor([list(ids)]))
        whole.model(inputs_embeds=first, use_cache=False)
        for layer in layers:
            del layer.forward
        inputs = [first, *run(first, 0)]
        expected = logits(inputs[-1])
        for number, layer in enumerate(layers):
            for part, names in MATRICES.items():
                modules = [layer.get_submodule(name) for name in names]
                kept = [module.weight.data for module in modules]
                name, stacked = f"model.layers.{number}.{part}", torch.cat(kept)
                stored: Any = torch.from_numpy(quantize(name, stacked.numpy()))
                for module, weight in zip(modules, stored.split([len(each) for each in kept]), strict=True):
                    module.weight.data = weight
                *_, last = run(inputs[number], number)
                for module, weight in zip(modules, kept, strict=True):
                    module.weight.data = weight
                yield name, stacked.numel(), float(divergence(expected, logits(last)).mean())


def dequantized(blocks: Blocks, columns: int) -> FloatArray:
    """The matrix [N, K] that symmetric 4-bit blocks stand for."""
    packed = blocks.packed
    integers = np.stack([packed & 15, packed >> 4], -1).reshape(*blocks.scales.shape, -1)
    values = (integers.astype(np.float32) - 8) * blocks.scales[..., None]
    return np.ascontiguousarray(values.reshape(len(packed), -1)[:, :columns])
