"""A graph loaded by ONNX Runtime and run over bound buffers.

Responsible for the library's settings. Not responsible for the content of the buffers (see `ort_engine`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from threading import Lock
from typing import Any, Self

import onnxruntime as ort
from numpy.typing import NDArray

from edge_runtime.errors import EngineError

_CPU = ("cpu", 0)
_PARALLEL_PREPARATION = "session.prepack.enable_parallel"
_WHOLE_ATTENTION = "ORT_GQA_DISABLE_FLASH_ATTENTION"
_environment = Lock()


def session_options(threads: int) -> ort.SessionOptions:
    """Session options for one request at a time.

    Threads may spin within a pass, where waits are microseconds, and sleep between passes, to save energy.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # One pattern is kept per shape, and nearly every chunk has another shape.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def without_optimization(options: ort.SessionOptions) -> ort.SessionOptions:
    """The options for a graph that is optimised already; changed in place."""
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


class BoundGraph:
    """A graph and the buffers it reads and writes. inputs: their names."""

    def __init__(
        self,
        graph: Path,
        options: ort.SessionOptions,
        *,
        whole_attention: bool = False,
    ) -> None:
        """Loads a graph, whose weights stay in their file and are mapped.

        whole_attention: compute all attention scores of a pass at once, instead of block by block.

        Raises EngineError where it does not load.
        """
        options.add_session_config_entry(_PARALLEL_PREPARATION, "1")
        try:
            with _attention(whole_attention):
                self._session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exceptions have no base of their own
            raise EngineError(f"{graph}: expected a graph ONNX Runtime can load, found: {error}") from error
        self._binding = self._session.io_binding()
        self.inputs = {node.name for node in self._session.get_inputs()}

    def fork(self) -> Self:
        """The same graph with buffers of its own."""
        other = copy(self)
        other._binding = self._session.io_binding()
        return other

    def bind_input(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Binds an input to a buffer, which the caller keeps alive while it is bound; returns the buffer."""
        self._binding.bind_input(name, *_CPU, array.dtype.type, array.shape, _address(array))
        return array

    def bind_output(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Binds an output to a buffer; see `bind_input`."""
        self._binding.bind_output(name, *_CPU, array.dtype.type, array.shape, _address(array))
        return array

    def run(self) -> None:
        """Runs one pass."""
        self._session.run_with_iobinding(self._binding)


@contextmanager
def _attention(whole: bool) -> Iterator[None]:
    """Sets the environment variable by which ONNX Runtime chooses its attention while a graph is loaded.

    The user's own setting of it takes precedence.
    """
    with _environment:
        if not whole or _WHOLE_ATTENTION in os.environ:
            yield
            return
        os.environ[_WHOLE_ATTENTION] = "1"
        try:
            yield
        finally:
            del os.environ[_WHOLE_ATTENTION]


def _address(array: NDArray[Any]) -> int:
    # A tenth of the time that array.ctypes takes, and called dozens of times per token.
    address: int = array.__array_interface__["data"][0]
    return address
