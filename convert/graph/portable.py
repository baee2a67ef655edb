"""A graph whose logits agree across processors, beside the one that is fastest on each.

Graphs with quantised weights round activations to 8 bits on the fly. A sum that differs in its last bit may
then round the other way, and log-probabilities differ by some tenths; with activations in float32 they agree
to about 1e-4. ONNX Runtime has fast kernels for that with weights of 4 bits only, so a byte 16 h + l is read
as the two of them that it consists of, in the order in which it stores them:

    s (16 h + l - 128) x  =  s (h - 8) 16 x  +  s (l - 8) x  +  8 s x

The first two are one product of twice as many columns over the same bytes; the last has a term per block.

Responsible for that second graph, which reads the weights of the first. Not responsible for opening it (see
`edge_runtime.engine.ort_engine`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from convert.graph.nodes import MICROSOFT

PORTABLE = "portable.onnx"
FLOAT32 = 1
"""MatMulNBits' accuracy_level that keeps activations in float32."""


def write_portable_graph(path: Path) -> bool:
    """Write a graph beside the one at `path`; returns False where that one has no quantised products."""
    model = onnx.load(path, load_external_data=False)
    before = list(model.graph.node)
    if not any(node.op_type == "MatMulNBits" for node in before):
        return False
    products = _Products(model.graph)
    del model.graph.node[:]
    for node in before:
        if node.op_type == "MatMulNBits":
            products.add(node)
        else:
            model.graph.node.append(node)
    onnx.save_model(model, str(path.with_name(PORTABLE)))
    return True


class _Products:
    """Appends products with float32 activations to a graph."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        last = next(node for node in graph.node if "logits" in node.output)
        self._head = last.input[0]
        self._constants: set[str] = set()
        self._inputs: dict[tuple[str, int], tuple[str, str]] = {}

    def add(self, node: Any) -> None:
        """The product of a MatMulNBits in its place."""
        settings = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        settings["accuracy_level"] = FLOAT32
        if settings["bits"] == 4:
            self._node("MatMulNBits", node.input, node.output[0], domain=MICROSOFT, **settings)
            return
        columns, block, out = settings["K"], settings["block_size"], node.output[0]
        nibbles, sums = self._split(node.input[0], columns, block)
        settings |= {"bits": 4, "K": 2 * columns, "block_size": 2 * block}
        product = self._node(
            "MatMulNBits", [nibbles, *node.input[1:]], f"{out}.nibbles", domain=MICROSOFT, **settings
        )
        wide = self._node(
            "Gemm", [sums, node.input[2], product], f"{out}.wide", alpha=8.0, beta=1.0, transB=1
        )
        shape = [-1, settings["N"]] if out == self._head else [1, -1, settings["N"]]
        self._node("Reshape", [wide, self._constant(shape)], out)

    def _split(self, x: str, columns: int, block: int) -> tuple[str, str]:
        """Of x [.., S, K]: [S, 2 K] with each number and 16 times it, and the sums [S, K / block]."""
        if (x, block) not in self._inputs:
            flat = self._node("Reshape", [x, self._constant([-1, columns, 1])], f"{x}.flat")
            pairs = self._node("Mul", [flat, self._constant([1, 16], np.float32)], f"{x}.pairs")
            nibbles = self._node("Reshape", [pairs, self._constant([-1, 2 * columns])], f"{x}.nibbles")
            if short := -columns % block:
                flat = self._node("Pad", [flat, self._constant([0, 0, 0, 0, short, 0])], f"{x}.padded")
            blocks = self._node(
                "Reshape", [flat, self._constant([-1, -(-columns // block), block])], f"{x}.blocks"
            )
            sums = self._node("ReduceSum", [blocks, self._constant([2])], f"{x}.sums", keepdims=0)
            self._inputs[x, block] = nibbles, sums
        return self._inputs[x, block]

    def _node(self, op: str, inputs: Any, output: str, **attributes: Any) -> str:
        name = f"{output}/portable"
        self._graph.node.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def _constant(self, value: list[int], dtype: Any = np.int64) -> str:
        array = np.asarray(value, dtype)
        name = f"portable_{array.dtype}_{'_'.join(map(str, value))}"
        if name not in self._constants:
            self._constants.add(name)
            self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name
