"""An ONNX graph written node by node, its weights streamed to a file beside it.

Responsible for ONNX's containers: nodes, initializers, external data. Not responsible for the model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
OPSET = 18
IR_VERSION = 10
# Large weights start on a page, so that they can be mapped, small ones on a cache line.
_PAGE, _LINE = 4096, 64
_LARGE = 1 << 20


class GraphWriter:
    """Collects nodes; weights are written to disk at once, so memory holds no more than one of them.

    Use as a context manager: the data file is complete once the block ends.
    """

    def __init__(self, data_path: Path) -> None:
        self._data_path = data_path
        self._file = data_path.open("wb")
        self._nodes: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._names = 0

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()

    def fresh(self, stem: str) -> str:
        """A name that is not used yet, beginning with `stem`."""
        self._names += 1
        return f"{stem}_{self._names}"

    def node(self, op: str, inputs: Sequence[str], *, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        return self.nodes(op, inputs, 1, domain=domain, **attributes)[0]

    def nodes(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int | Sequence[str],
        *,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add a node with several outputs: their number, or their names ("" for one that is not wanted)."""
        name = self.fresh(op)
        if isinstance(outputs, int):
            outputs = [name if index == 0 else f"{name}_{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return list(outputs)

    def weight(self, name: str, value: npt.NDArray[Any]) -> str:
        """Write a weight to the data file and return its name in the graph."""
        value = np.ascontiguousarray(value)
        boundary = _PAGE if value.nbytes >= _LARGE else _LINE
        self._file.write(bytes(-self._file.tell() % boundary))
        offset = self._file.tell()
        self._file.write(value.data)
        self._register(name, value.shape, helper.np_dtype_to_tensor_dtype(value.dtype), offset, value.nbytes)
        return name

    def view(self, name: str, of: str, shape: Sequence[int]) -> str:
        """A second initializer, of another shape, over the bytes of a weight already written."""
        source = self._initializers[of]
        where = {entry.key: int(entry.value) for entry in source.external_data if entry.key != "location"}
        self._register(name, shape, source.data_type, where["offset"], where["length"])
        return name

    def _register(self, name: str, shape: Sequence[int], kind: int, offset: int, length: int) -> None:
        if name in self._initializers:
            raise ValueError(f"initializer {name!r} is already there")
        tensor = TensorProto(name=name, dims=list(shape), data_type=kind)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._data_path.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self._initializers[name] = tensor

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        """A small value kept in the graph file itself; equal values share one initializer."""
        array = np.asarray(value, dtype)
        name = f"const_{array.dtype}_{'x'.join(map(str, array.shape))}_{'_'.join(map(str, array.ravel()))}"
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def save(
        self,
        path: Path,
        inputs: Mapping[str, tuple[int, Sequence[int | str]]],
        outputs: Mapping[str, tuple[int, Sequence[int | str]]],
        metadata: Mapping[str, str],
    ) -> None:
        """Write the graph file. Inputs and outputs: name to (ONNX element type, shape)."""
        graph = helper.make_graph(
            self._nodes,
            "model",
            [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
            [helper.make_tensor_value_info(name, *info) for name, info in outputs.items()],
            list(self._initializers.values()),
        )
        domains = {node.domain for node in self._nodes} - {""}
        opsets = [
            helper.make_opsetid("", OPSET),
            *(helper.make_opsetid(domain, 1) for domain in sorted(domains)),
        ]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="inverse-speculation"
        )
        helper.set_model_props(model, dict(metadata))
        onnx.save_model(model, str(path))
