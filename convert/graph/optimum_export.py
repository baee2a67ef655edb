"""A decoder's graph by optimum: traced from transformers' own module, with a growing cache.

Responsible for the call of that library, for whether its graph fits the device's engine, and for the form in
which a bundle has it: weights in a file beside the graph, logits of chosen rows only, as graphs of `decoder`
have them. Not responsible for what the graph computes (see `verify`) or for running it
(`edge_runtime.engine.caches`).

    input_ids       int64   [1, S]      the chunk
    attention_mask  int64   [1, T]      all ones; T = tokens before the chunk + S
    position_ids    int64   [1, S]      of families whose module takes them
    rows            int64   [R]         which of the S tokens give logits; may be empty
    past_key_values.{i}.key, .value     float32 [1, C, T - S, D]
    logits          float32 [R, V]
    present.{i}.key, .value             float32 [1, C, T, D]
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from common.installed import remedy
from convert.errors import ArchitectureError, OptionError, SourceError
from convert.graph.decoder import DATA_SUFFIX
from convert.graph.dialects import past_name, save_decoder
from convert.graph.nodes import OPSET, GraphWriter
from convert.source.exportable import ExportableCheckpoint, ExportableShape

EXPORTED = "model.onnx"
"""The file that the library writes; for large models its weights lie beside it."""

_TASK = "text-generation-with-past"
_POSITIONS = "position_ids"
_SMALL = 1024
"""Tensors with fewer elements stay in the graph, in their own precision."""
_ELEMENTWISE = {"Cast", "Tanh", "Identity", "Add", "Sub", "Mul", "Div"}
"""Operators that may stand between the output head and the logits: a bias, a scale, a soft cap."""


def export_by_optimum(checkpoint: ExportableCheckpoint, out: Path) -> None:
    """Write the library's graph in float32 to the folder `out`.

    Raises OptionError where optimum is not installed, ArchitectureError where it cannot export the
    architecture, SourceError where it fails otherwise.
    """
    export = _library()
    kind = checkpoint.shape.architecture
    try:
        with _quiet():
            export(
                str(checkpoint.folder),
                out,
                task=_TASK,
                opset=OPSET,
                dtype="fp32",
                device="cpu",
                local_files_only=True,
                library_name="transformers",
                do_validation=False,  # the conversion compares the logits of the device's engine
            )
    except (ValueError, KeyError) as error:
        expected, found = "a decoder that optimum exports with a cache", f"{kind}: {str(error)[:300]}"
        raise ArchitectureError(f"{checkpoint.folder}: expected {expected}, found {found}") from error
    except (MemoryError, OSError):
        raise
    except Exception as error:  # torch's exporter raises anything
        raise SourceError(f"{checkpoint.folder}: optimum cannot export {kind}: {str(error)[:300]}") from error


def write_exported(
    source: Path,
    path: Path,
    shape: ExportableShape,
    *,
    half: bool,
    context: int,
    progress: Callable[[int], None] = lambda parameters: None,
) -> None:
    """Write `path` and `path` + ".data" from the library's graph at `source`.

    half: store matrices in float16; a Cast, which a runtime folds when it loads the graph, restores float32.
    progress is called with the number of parameters written since its last call. Raises ArchitectureError
    where the graph has other inputs or caches than the device's engine gives it.
    """
    model = onnx.load(str(source))
    graph = model.graph
    positioned = _checked_inputs(graph, shape)
    _choose_rows(graph)
    with GraphWriter(path.with_name(path.name + DATA_SUFFIX)) as writer:
        for tensor in graph.initializer:
            value = numpy_helper.to_array(tensor)
            if value.size < _SMALL:
                writer.include_tensor(numpy_helper.from_array(value, tensor.name))
            elif half and value.ndim > 1 and value.dtype == np.float32:
                stored = writer.weight(f"{tensor.name}.half", value.astype(np.float16))
                writer.nodes("Cast", [stored], [tensor.name], to=TensorProto.FLOAT)
            else:
                writer.weight(tensor.name, value)
            progress(value.size)
        for node in graph.node:
            writer.include_node(node)
        more = [_POSITIONS] * positioned
        metadata = {"context": str(context), "dialect": "exported"}
        save_decoder(writer, path, shape, metadata, ("past", "total"), more)


def _library() -> Callable[..., None]:
    """optimum's export function; raises OptionError where it cannot be imported."""
    try:
        with _quiet():
            from optimum.exporters.onnx import main_export
    except ImportError as error:
        raise OptionError(
            f"--exporter optimum: expected the packages of the extra optimum, found: {error}. "
            f"Run {remedy('optimum')}, which holds transformers 4.57, in an environment of its own where you "
            "use transformers 5."
        ) from error
    result: Callable[..., None] = main_export
    return result


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of the tracer and the library's own log, about choices that are right here."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _checked_inputs(graph: Any, shape: ExportableShape) -> bool:
    """True where the graph takes position ids; raises ArchitectureError where it is not an engine's."""
    found = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in graph.input}
    past = {
        past_name(i, part): [shape.num_key_value_heads, shape.head_dim]
        for i in range(shape.num_hidden_layers)
        for part in ("key", "value")
    }
    others = found.keys() ^ {"input_ids", "attention_mask", *past}
    wrong = [name for name in past if name in found and found[name][1::2] != past[name]]
    if others - {_POSITIONS} or wrong:
        what = f"caches {wrong[0]} {found[wrong[0]]}" if wrong else f"others: {sorted(others)[:4]}"
        raise ArchitectureError(
            f"{shape.architecture}: expected a graph with the inputs of a decoder of "
            f"{shape.num_hidden_layers} layers, {shape.num_key_value_heads} key/value heads of size "
            f"{shape.head_dim}, found {what}. Such a graph cannot be run on the device."
        )
    return _POSITIONS in found


def _choose_rows(graph: Any) -> None:
    """Changes the logits from [1, S, V] to [R, V], before the output head where that is a product."""
    made = {name: node for node in graph.node for name in node.output}
    nodes = list(graph.node)
    head = _head(graph, made)
    last = made["logits"]
    if head is None:
        gather = onnx.helper.make_node("Gather", ["logits.all", "rows"], ["logits.rows"], axis=1)
        last.output[list(last.output).index("logits")] = "logits.all"
        nodes.append(gather)
    else:
        gather = onnx.helper.make_node("Gather", [head.input[0], "rows"], ["hidden.rows"], axis=1)
        head.input[0] = "hidden.rows"
        last.output[list(last.output).index("logits")] = "logits.rows"
        nodes.insert(nodes.index(head), gather)
    axis = numpy_helper.from_array(np.array([0], np.int64), "logits.axis")
    nodes.append(onnx.helper.make_node("Squeeze", ["logits.rows", "logits.axis"], ["logits"]))
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.append(axis)


def _head(graph: Any, made: dict[str, Any]) -> Any:
    """The product of hidden states with a weight that gives the logits; None where there is no such node."""
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {name for name, node in made.items() if node.op_type == "Constant"}

    def constant(name: str) -> bool:
        node = made.get(name)
        moved = node is not None and node.op_type in ("Transpose", "Identity") and constant(node.input[0])
        return name in constants or moved

    name = "logits"
    while (node := made.get(name)) is not None:
        if node.op_type == "MatMul":
            return node if constant(node.input[1]) and not constant(node.input[0]) else None
        changing = [item for item in node.input if not constant(item)]
        if node.op_type not in _ELEMENTWISE or len(changing) != 1:
            return None
        name = changing[0]
    return None
