"""Storage formats of weight matrices, with the operators that multiply by them.

Responsible for one class per format, each with the same three operations: a linear layer, the embedding
look-up and the output head. Not responsible for the order of the layers (see `decoder`).

Shapes: S tokens in a chunk, R rows of logits, K inputs, N outputs, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from convert.graph.nodes import MICROSOFT, GraphWriter
from convert.graph.quantisation import BLOCK, Blocks, quantize
from convert.source.checkpoint import FloatArray

EMBEDDING, HEAD = "embed_tokens", "lm_head"

Shape = tuple[int, int]
Bias = FloatArray | None

LayerQuantizer = Callable[[str, FloatArray, int], Blocks]
"""A matrix [N, K] of a layer, by its name and in blocks of a size, to integers and scales."""


@dataclass(frozen=True)
class Floating:
    """Floating point. Half precision is for storage alone: a Cast, which a runtime folds when it loads the
    graph, restores float32, so nothing can overflow and no kernel for half precision is needed.
    """

    half: bool = False

    def _store(self, graph: GraphWriter, name: str, value: FloatArray) -> str:
        if not self.half:
            return graph.weight(name, value)
        return self._restored(graph, graph.weight(name, value.astype(np.float16)))

    def _restored(self, graph: GraphWriter, name: str) -> str:
        return graph.node("Cast", [name], to=TensorProto.FLOAT)

    def linear(self, graph: GraphWriter, x: str, name: str, weight: FloatArray, bias: Bias = None) -> str:
        """x [1, S, K] times weight [N, K] transposed, plus bias [N]: [1, S, N]."""
        y = graph.node("MatMul", [x, self._store(graph, f"{name}.weight", weight.T)])
        return y if bias is None else graph.node("Add", [y, graph.weight(f"{name}.bias", bias)])

    def embedding(self, graph: GraphWriter, ids: str, weight: FloatArray) -> str:
        """Rows of weight [V, K] at ids [1, S]: [1, S, K]."""
        if not self.half:
            return graph.node("Gather", [graph.weight(EMBEDDING, weight), ids], axis=0)
        # Gather first, so that only the rows used are cast.
        name = graph.weight(EMBEDDING, weight.astype(np.float16))
        return self._restored(graph, graph.node("Gather", [name, ids], axis=0))

    def head(self, graph: GraphWriter, x: str, shape: Shape, weight: FloatArray | None) -> str:
        """Logits [R, V] of x [R, K] with a weight of shape [V, K]; None for the embedding's (tied)."""
        if weight is not None:
            table = self._store(graph, HEAD, weight)
        else:
            table = self._restored(graph, EMBEDDING) if self.half else EMBEDDING
        return graph.node("Gemm", [x, table], transB=1)


@dataclass(frozen=True)
class Blockwise:
    """Integers in blocks with a scale each, multiplied by MatMulNBits and looked up by GatherBlockQuantized.

    A tied head and embedding are the same bytes of the data file, read in two shapes.

    accuracy: MatMulNBits' accuracy_level; 4 quantises activations to 8 bits on the fly, 0 keeps them float32.
    layers: quantises a layer's matrix, by its name, in this format's bits and blocks of the given size; None
            for `quantize`.
    """

    bits: int
    block: int = BLOCK
    accuracy: int = 4
    layers: LayerQuantizer | None = None

    def block_of(self, columns: int) -> int:
        """The block of a matrix with so many columns: this format's, halved down to 32 until it divides them.

        Blocks of 32 that do not divide them are padded.
        """
        block = self.block
        while block > BLOCK and columns % block:
            block //= 2
        return block

    def _store(self, graph: GraphWriter, name: str, weight: FloatArray) -> tuple[str, str]:
        return self._stored(graph, name, quantize(weight, self.bits, self.block_of(weight.shape[1])))

    @staticmethod
    def _stored(graph: GraphWriter, name: str, blocks: Blocks) -> tuple[str, str]:
        return graph.weight(f"{name}.weight", blocks.packed), graph.weight(f"{name}.scales", blocks.scales)

    def _matmul(self, graph: GraphWriter, inputs: list[str], shape: Shape) -> str:
        outputs, columns = shape
        return graph.node(
            "MatMulNBits",
            inputs,
            domain=MICROSOFT,
            K=columns,
            N=outputs,
            bits=self.bits,
            block_size=self.block_of(columns),
            accuracy_level=self.accuracy,
        )

    def linear(self, graph: GraphWriter, x: str, name: str, weight: FloatArray, bias: Bias = None) -> str:
        block = self.block_of(weight.shape[1])
        blocks = self.layers(name, weight, block) if self.layers else quantize(weight, self.bits, block)
        inputs = [x, *self._stored(graph, name, blocks)]
        if bias is not None:
            inputs += ["", "", graph.weight(f"{name}.bias", bias)]  # no zero points, no group index
        return self._matmul(graph, inputs, (weight.shape[0], weight.shape[1]))

    def embedding(self, graph: GraphWriter, ids: str, weight: FloatArray) -> str:
        rows, columns = weight.shape
        packed, scales = self._store(graph, EMBEDDING, weight)
        block = self.block_of(columns)
        count = -(-columns // block)
        table = graph.view(f"{EMBEDDING}.rows", packed, [rows, count * block * self.bits // 8])
        y = graph.node(
            "GatherBlockQuantized",
            [table, ids, scales],
            domain=MICROSOFT,
            bits=self.bits,
            block_size=block,
            gather_axis=0,
            quantize_axis=1,
        )
        if columns % block:  # the last block's padding
            ends = [graph.constant([value]) for value in (0, columns, 2)]
            y = graph.node("Slice", [y, *ends])
        return y

    def head(self, graph: GraphWriter, x: str, shape: Shape, weight: FloatArray | None) -> str:
        if weight is not None:
            return self._matmul(graph, [x, *self._store(graph, HEAD, weight)], shape)
        return self._matmul(graph, [x, f"{EMBEDDING}.weight", f"{EMBEDDING}.scales"], shape)


WeightFormat = Floating | Blockwise
"""A storage format. Activations are float32 in both."""
