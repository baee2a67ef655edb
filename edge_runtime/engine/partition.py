"""A graph split into parts that run one after the other, so that their weights are prepared in parallel.

ONNX Runtime prepares a session's weights in one thread; from 1.31 on in several, but in the order of the
graph, whose output head is the largest weight and comes last. Sessions of half a graph each, loaded at the
same time on two cores, are ready in two thirds of the time of one (0.87 of that with several threads), and
give the same logits: every operator is in one of them, unchanged. All parts read the same file of weights.

Responsible for the few fields of ONNX's containers that a split touches; everything else in a graph is kept.
Not responsible for what the graph computes or for running its parts (see `ort_session`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime as ort
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Message: its fields as (name, number, type, repeated), after onnx.proto.
_MESSAGES: dict[str, list[tuple[str, int, str, bool]]] = {
    "Model": [("graph", 7, "Graph", False)],
    "Graph": [
        ("node", 1, "Node", True),
        ("initializer", 5, "Tensor", True),
        ("input", 11, "Value", True),
        ("output", 12, "Value", True),
    ],
    "Node": [("input", 1, "string", True), ("output", 2, "string", True)],
    "Tensor": [("name", 8, "string", False), ("external_data", 13, "Entry", True)],
    "Entry": [("key", 1, "string", False), ("value", 2, "string", False)],
    "Value": [("name", 1, "string", False), ("type", 2, "Type", False)],
    "Type": [("tensor_type", 1, "TensorType", False)],
    "TensorType": [("elem_type", 1, "int32", False)],
}
_ELEMENTS = {"tensor(float)": 1, "tensor(int32)": 6, "tensor(int64)": 7, "tensor(bool)": 9}
_PREPACKED = "prepacked"
_LARGE = 32 << 20


def split(path: Path, count: int) -> list[Path]:
    """Replaces a graph by up to `count` parts that take equally long to prepare; returns their paths.

    Returns the graph's own path, and leaves it, where it has no prepacked weights: there is nothing to gain
    then. Raises OSError, and ONNX Runtime's exceptions or KeyError for a graph that cannot be split.
    """
    model = _message("Model")
    model.ParseFromString(path.read_bytes())
    ends = _ends(model.graph, count)
    if len(ends) < 2:
        return [path]
    parts, types = [], {value.name: value for value in model.graph.input}
    for index, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        part = _part(model, start, end, types)
        parts.append(path.with_name(f"part-{index}-of-{len(ends)}{path.suffix}"))
        parts[-1].write_bytes(part.SerializeToString())
        types |= _outputs(parts[-1])
    path.unlink()
    return parts


def _ends(graph: Any, count: int) -> list[int]:
    """Node indices at which the parts end, for equal shares of the weights."""
    costs = {
        tensor.name: _cost(next(int(entry.value) for entry in tensor.external_data if entry.key == "length"))
        for tensor in graph.initializer
        if any(entry.key.startswith(_PREPACKED) for entry in tensor.external_data)
    }
    total, seen = sum(costs.values()), 0.0
    ends: list[int] = []
    for index, node in enumerate(graph.node):
        before, seen = seen, seen + sum(costs.pop(name, 0) for name in node.input)
        # The middle of a node's own weights decides the side of a cut that it is on.
        if len(ends) + 1 < count and (before + seen) * count > 2 * total * (len(ends) + 1):
            ends.append(index)
    return [*ends, len(graph.node)] if total else []


def _cost(size: int) -> float:
    """Time to prepare a weight, in arbitrary units. Memory for large ones is newly mapped, which takes about
    a quarter more.
    """
    return 1.25 * size if size > _LARGE else size


def _part(model: Any, start: int, end: int, types: dict[str, Any]) -> Any:
    """The nodes from `start` to `end` as a graph of their own. types: of the inputs and earlier outputs."""
    nodes = model.graph.node[start:end]
    read = dict.fromkeys(name for node in nodes for name in node.input if name)
    made = dict.fromkeys(name for node in nodes for name in node.output if name)
    later = {name for node in model.graph.node[end:] for name in node.input}
    constants = {tensor.name for tensor in model.graph.initializer}
    part = _message("Model")
    part.CopyFrom(model)
    graph = part.graph
    for field in ("node", "initializer", "input", "output"):
        graph.ClearField(field)
    graph.node.extend(nodes)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    graph.input.extend(types[name] for name in read if name not in made and name not in constants)
    graph.output.extend(value for value in model.graph.output if value.name in made)
    # Without a type: ONNX Runtime infers it.
    graph.output.extend(_message("Value", name=name) for name in made if name in later)
    return part


def _outputs(path: Path) -> dict[str, Any]:
    """The outputs of a part with the types that ONNX Runtime infers."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return {
        node.name: _message(
            "Value", name=node.name, type={"tensor_type": {"elem_type": _ELEMENTS[node.type]}}
        )
        for node in session.get_outputs()
    }


def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="graph.proto", package="graph", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            entry = message.field.add(name=field, number=number)
            entry.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in _MESSAGES:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".graph.{kind}"
            else:
                entry.type = kinds.TYPE_STRING if kind == "string" else kinds.TYPE_INT32
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()


def _message(kind: str, /, **fields: Any) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"graph.{kind}"))(**fields)
