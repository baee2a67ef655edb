"""A model on ONNX Runtime, with one cache buffer that is past and present at once.

Knows the inputs and outputs of a bundle's graph, and how to bind them so that nothing is copied: the cache is
updated in place, forgetting is a shorter mask, and logits land in a buffer that is used again. Does not know
which tokens to run (see `forced`).

Shapes: S tokens in a chunk, T tokens in the cache after it, R rows of logits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_runtime.bundle import Bundle, ModelShape
from edge_runtime.engine import BaseEngine, Logits
from edge_runtime.errors import ContextError, EngineError
from edge_runtime.prepack import PrepackCache
from edge_runtime.profiles import LATENCY, Profile
from edge_runtime.threads import performance_cores
from edge_runtime.unrounded import unrounded

MIN_BUFFER = 64
"""Tokens the first cache buffer has room for, at least."""

_CPU = ("cpu", 0)
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


def checked_context(bundle: Bundle, context: int | None) -> int:
    """The context asked for, or the bundle's own; raises ContextError for more than the bundle's."""
    if context is not None and not 0 < context <= bundle.context:
        raise ContextError(
            f"{bundle.path}: expected a context of 1 to {bundle.context} tokens, found {context}. "
            "Ask for less, or convert the model with a longer context."
        )
    return bundle.context if context is None else context


def session_options(
    threads: int, profile: Profile = LATENCY, *, deterministic: bool = False
) -> ort.SessionOptions:
    """Options for one request at a time.

    Threads may spin within a pass, where they wait for microseconds, and sleep between passes, where a device
    should save its battery.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A pattern is kept for each shape seen, and every chunk has another one.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = profile.arena
    options.use_deterministic_compute = deterministic
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if profile.spin else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


class OrtEngine(BaseEngine):
    """Runs a bundle's graph; not for use from two threads at a time.

    The cache starts small and doubles as it fills, up to `context` tokens. Memory for it is
    2 * layers * kv_heads * head_dim * 4 bytes a token.
    """

    def __init__(
        self,
        graph: Path,
        shape: ModelShape,
        *,
        context: int,
        threads: int | None = None,
        options: ort.SessionOptions | None = None,
        rounded: bool = True,
    ) -> None:
        """Loads a graph of the given shape, by default with `session_options` for so many threads.

        rounded: False leaves activations in float32 (see `unrounded`).
        """
        super().__init__(context=context, vocab=shape.vocab_size)
        if options is None:
            options = session_options(performance_cores() if threads is None else threads)
        try:
            # The weights stay in the file and are mapped.
            model: str | bytes = str(graph)
            if not rounded:
                model = unrounded(graph.read_bytes())
                options.add_session_config_entry(_WEIGHTS_FOLDER, str(graph.parent))
            self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exceptions have no base of their own
            raise EngineError(f"{graph}: expected a graph ONNX Runtime can load, found: {error}") from error
        caches = [f"{i}.{part}" for i in range(shape.num_hidden_layers) for part in ("key", "value")]
        self._check_names(graph, caches)
        self._binding = self._session.io_binding()
        self._names = caches
        self._heads, self._head_dim = shape.num_key_value_heads, shape.head_dim
        self._caches: list[NDArray[np.float32]] = []
        self._capacity = 0
        self._mask: NDArray[np.int64] = np.ones((1, 0), np.int64)
        self._logits: Logits = np.empty((0, self.vocab), np.float32)

    @classmethod
    def open(
        cls,
        bundle: Bundle,
        *,
        context: int | None = None,
        threads: int | None = None,
        cache: PrepackCache | None = None,
        profile: Profile = LATENCY,
        deterministic: bool = False,
        rounded: bool = True,
    ) -> OrtEngine:
        """The engine of a bundle's chosen variant. Raises ContextError or EngineError.

        threads: one for each fast core where None.
        cache:   where prepacked weights of the bundle, which must be verified, are kept; None for none.
        deterministic: use only kernels that add in the same order every time.
        rounded: False leaves activations in float32 (see `unrounded`); the cache is then of no use.
        """
        shape, size = bundle.manifest.model, checked_context(bundle, context)
        threads = performance_cores() if threads is None else threads

        def options() -> ort.SessionOptions:
            return session_options(threads, profile, deterministic=deterministic)

        if rounded and cache and (cache.usable() or (not cache.unfit() and cache.build(options()))):
            as_it_is = options()
            as_it_is.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            try:
                return cls(cache.graph, shape, context=size, options=as_it_is)
            except EngineError as error:
                logging.getLogger(__name__).warning("prepacked weights are not used: %s", error)
        return cls(bundle.graph_path, shape, context=size, options=options(), rounded=rounded)

    @property
    def capacity(self) -> int:
        """Tokens the cache buffer has room for now."""
        return self._capacity

    def _check_names(self, graph: Path, caches: Sequence[str]) -> None:
        wanted = {"input_ids", "attention_mask", "rows"} | {f"past_key_values.{name}" for name in caches}
        found = {node.name for node in self._session.get_inputs()}
        if wanted != found:
            raise EngineError(
                f"{graph}: expected the inputs of a {len(caches) // 2}-layer model as bundle.json states it, "
                f"but {sorted(wanted ^ found)[:4]} differ. Convert the model again."
            )

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        total = self.length + len(ids)
        try:
            self._reserve(total)
            if len(self._logits) < len(rows):
                self._logits = np.empty((len(rows), self.vocab), np.float32)
            logits = self._logits[: len(rows)]
            held = (
                self._input("input_ids", np.asarray([ids], np.int64)),
                self._input("attention_mask", self._mask[:, :total]),
                self._input("rows", np.asarray(rows, np.int64)),
            )
            self._binding.bind_output("logits", *_CPU, np.float32, logits.shape, _address(logits))
            self._session.run_with_iobinding(self._binding)
            del held  # the binding holds addresses only
        except MemoryError as error:
            raise self._out_of_memory(total) from error
        except Exception as error:  # as above
            if "bad_alloc" in str(error) or "Failed to allocate memory" in str(error):
                raise self._out_of_memory(total) from error
            raise EngineError(
                f"ONNX Runtime failed on {len(ids)} tokens after {self.length}: {error}"
            ) from error
        return logits

    def _out_of_memory(self, total: int) -> EngineError:
        size = 4 * len(self._names) * self._heads * self._head_dim * max(total, self._capacity)
        return EngineError(
            f"out of memory: the cache of {total} tokens takes {size >> 20} MB beside the weights. "
            "Use a shorter prompt, --max-tokens, or a smaller variant."
        )

    def _reserve(self, total: int) -> None:
        """Makes room for `total` tokens, keeping the first `self.length`."""
        if total <= self._capacity:
            return
        capacity = min(max(MIN_BUFFER, 1 << (total - 1).bit_length()), self.context)
        shape = (1, self._heads, capacity, self._head_dim)
        grown: list[NDArray[np.float32]] = []
        for index in range(len(self._names)):
            # Pages of it that hold no token yet take no memory.
            buffer = np.empty(shape, np.float32)
            if self.length:
                buffer[:, :, : self.length] = self._caches[index][:, :, : self.length]
            grown.append(buffer)
        # An interrupt between two bindings must not leave one to a buffer that is gone: until all are done
        # the capacity is none, and the next pass starts over from the copies.
        self._caches, self._capacity = grown, 0
        for name, buffer in zip(self._names, grown, strict=True):
            self._input(f"past_key_values.{name}", buffer)
            self._binding.bind_output(f"present.{name}", *_CPU, np.float32, shape, _address(buffer))
        self._mask = np.ones((1, capacity), np.int64)
        self._capacity = capacity

    def _input(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        self._binding.bind_input(name, *_CPU, array.dtype.type, array.shape, _address(array))
        return array


def _address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)
