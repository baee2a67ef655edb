"""A graph loaded by ONNX Runtime, whole or in parts, and run over bound buffers.

Responsible for the library's settings, and for passing outputs of one part to the next. Not responsible for
the content of the buffers (see `ort_engine`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import onnxruntime as ort
from numpy.typing import NDArray

from edge_runtime.engine.fp32_activations import with_fp32_activations
from edge_runtime.engine.profiles import LATENCY, Profile
from edge_runtime.errors import EngineError

_CPU = ("cpu", 0)
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
_PARALLEL_PREPARATION = "session.prepack.enable_parallel"
_WHOLE_ATTENTION = "ORT_GQA_DISABLE_FLASH_ATTENTION"
_environment = Lock()


def session_options(
    threads: int, profile: Profile = LATENCY, *, deterministic: bool = False
) -> ort.SessionOptions:
    """Session options for one request at a time.

    Threads may spin within a pass, where waits are microseconds, and sleep between passes, to save energy.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # One pattern is kept per shape, and nearly every chunk has another shape.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = profile.arena
    options.use_deterministic_compute = deterministic
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if profile.spin else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def without_optimization(options: ort.SessionOptions) -> ort.SessionOptions:
    """The options for a graph that is optimised already; changed in place."""
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


class BoundGraph:
    """A graph and the buffers it reads and writes.

    inputs: names of the inputs that are not outputs of an earlier part.
    """

    def __init__(
        self,
        graphs: Sequence[Path],
        options: ort.SessionOptions,
        *,
        fp32_activations: bool = False,
        whole_attention: bool = False,
    ) -> None:
        """Loads the parts of a graph (see `partition`) in parallel, given in the order they run.

        fp32_activations: see the module of that name.
        whole_attention:  compute all attention scores of a pass at once, instead of block by block.

        Raises EngineError where a part does not load.
        """

        def load(graph: Path) -> _Part:
            # The weights stay in the file and are mapped.
            model: str | bytes = str(graph)
            if fp32_activations:
                model = with_fp32_activations(graph.read_bytes())
                options.add_session_config_entry(_WEIGHTS_FOLDER, str(graph.parent))
            return _Part(ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]))

        if len(graphs) == 1:  # parts are prepared in parallel already, and better balanced
            options.add_session_config_entry(_PARALLEL_PREPARATION, "1")
        try:
            with _attention(whole_attention), ThreadPoolExecutor(len(graphs)) as pool:
                self._parts = list(pool.map(load, graphs))
        except EngineError:
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no base of their own
            raise EngineError(
                f"{graphs[0]}: expected a graph ONNX Runtime can load, found: {error}"
            ) from error
        made: set[str] = set()
        self.inputs: set[str] = set()
        for part in self._parts:
            part.taken = sorted(part.inputs & made)
            self.inputs |= part.inputs - made
            made |= part.outputs
        for part in self._parts:
            part.bind_given(set().union(*(other.taken for other in self._parts)))

    def bind_input(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Binds an input to a buffer, which the caller keeps alive while it is bound; returns the buffer."""
        for part in self._parts:
            if name in part.inputs:
                part.binding.bind_input(name, *_CPU, array.dtype.type, array.shape, _address(array))
        return array

    def bind_output(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Binds an output to a buffer; see `bind_input`."""
        for part in self._parts:
            if name in part.outputs:
                part.binding.bind_output(name, *_CPU, array.dtype.type, array.shape, _address(array))
        return array

    def run(self) -> None:
        """Runs one pass. Outputs for later parts are allocated by ONNX Runtime and not copied."""
        handed: dict[str, Any] = {}
        for part in self._parts:
            part.run(handed)


class _Part:
    """A session and its binding.

    taken: names of the inputs from earlier parts. _given: names of the outputs for later parts.
    """

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self.binding = session.io_binding()
        self.inputs = {node.name for node in session.get_inputs()}
        self.outputs = {node.name for node in session.get_outputs()}
        self.taken: list[str] = []
        self._given: list[str] = []

    def bind_given(self, wanted: set[str]) -> None:
        """Binds the outputs for later parts; before any other, so that they are the binding's first."""
        self._given = sorted(self.outputs & wanted)
        self._bind_given()

    def _bind_given(self) -> None:
        for name in self._given:
            self.binding.bind_output(name)  # without a shape: it changes from pass to pass

    def run(self, handed: dict[str, Any]) -> None:
        for name in self.taken:
            self.binding.bind_ortvalue_input(name, handed[name])
        self._bind_given()
        self._session.run_with_iobinding(self.binding)
        if self._given:
            outputs = self.binding.get_outputs_as_ortvaluevector()
            handed.update((name, ort.OrtValue(outputs[index])) for index, name in enumerate(self._given))


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
