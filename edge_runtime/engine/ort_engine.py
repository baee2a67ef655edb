"""OrtEngine: a model on ONNX Runtime, with one buffer for past and present of the KV cache.

Responsible for the inputs and outputs of a bundle's graph, bound so that nothing is copied: the cache is
updated in place, a rewind is a shorter mask, and the buffer of logits is reused. Not responsible for which
tokens to run (see `forced`), nor for loading a graph (see `ort_session`).

Shapes: S tokens in a chunk, T tokens in the cache after it, R rows of logits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_runtime.bundle.bundle import Bundle, ModelShape
from edge_runtime.engine.base import BaseEngine, Logits
from edge_runtime.engine.ort_session import BoundGraph, session_options, without_optimization
from edge_runtime.engine.prepack import PrepackCache
from edge_runtime.engine.profiles import LATENCY, Profile
from edge_runtime.errors import ContextError, EngineError
from edge_runtime.system import performance_cores

MIN_BUFFER = 64
"""Least number of tokens of a cache buffer."""
PROBED = 9
"""Number of tokens run to compare two forms of a graph."""


def checked_context(bundle: Bundle, context: int | None) -> int:
    """The given context, or by default the bundle's; raises ContextError for more than the bundle's."""
    if context is not None and not 0 < context <= bundle.context:
        raise ContextError(
            f"{bundle.path}: expected a context of 1 to {bundle.context} tokens, found {context}. "
            "Ask for less, or convert the model with a longer context."
        )
    return bundle.context if context is None else context


class OrtEngine(BaseEngine):
    """Runs a bundle's graph. Not thread-safe.

    The cache starts small and doubles as it fills, up to `context` tokens. It takes
    2 * layers * kv_heads * head_dim * 4 bytes per token.
    """

    def __init__(
        self,
        graphs: Sequence[Path],
        shape: ModelShape,
        *,
        context: int,
        threads: int | None = None,
        options: ort.SessionOptions | None = None,
        profile: Profile = LATENCY,
        fp32_activations: bool = False,
    ) -> None:
        """Loads a graph of the given shape, or its parts (see `partition`).

        options: by default `session_options` for `threads`.
        fp32_activations: see the module of that name.
        """
        super().__init__(context=context, vocab=shape.vocab_size)
        if options is None:
            options = session_options(performance_cores() if threads is None else threads, profile)
        scores = 4 * shape.num_attention_heads * profile.max_chunk * context
        whole = scores <= profile.max_scores_bytes
        self._graph = BoundGraph(graphs, options, fp32_activations=fp32_activations, whole_attention=whole)
        self._names = [f"{i}.{part}" for i in range(shape.num_hidden_layers) for part in ("key", "value")]
        self._check_names(graphs[0])
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
        fp32_activations: bool = False,
    ) -> OrtEngine:
        """The engine of a bundle's chosen variant. Raises ContextError or EngineError.

        context: most tokens of the cache; None for the bundle's context.
        threads: None for one per fast core.
        cache:   keeps prepacked weights of the bundle, which must be verified; None for none.
        deterministic: use only kernels that add in the same order every time.
        fp32_activations: see the module of that name; the cache is not used then.
        """
        shape, size = bundle.manifest.model, checked_context(bundle, context)
        threads = performance_cores() if threads is None else threads

        def options() -> ort.SessionOptions:
            return session_options(threads, profile, deterministic=deterministic)

        def probe(graphs: Sequence[Path], options: ort.SessionOptions) -> Logits:
            engine = cls(graphs, shape, context=PROBED, options=options)
            # The kernels of chunks, and those of single tokens.
            logits = [engine.append(ids, range(len(ids))).copy() for ids in (range(PROBED - 1), [0])]
            return np.concatenate(logits)

        if fp32_activations:
            cache = None
        if cache and (cache.usable() or (not cache.unfit() and cache.build(options(), probe))):
            try:
                return cls(
                    cache.graphs(),
                    shape,
                    context=size,
                    options=without_optimization(options()),
                    profile=profile,
                )
            except EngineError as error:
                logging.getLogger(__name__).warning("prepacked weights are not used: %s", error)
        graphs = [bundle.graph_path]
        return cls(
            graphs,
            shape,
            context=size,
            options=options(),
            profile=profile,
            fp32_activations=fp32_activations,
        )

    @property
    def capacity(self) -> int:
        """Number of tokens that fit the cache buffer at its present size."""
        return self._capacity

    def _check_names(self, graph: Path) -> None:
        wanted = {"input_ids", "attention_mask", "rows"} | {f"past_key_values.{name}" for name in self._names}
        found = self._graph.inputs
        if wanted != found:
            raise EngineError(
                f"{graph}: expected the inputs of a {len(self._names) // 2}-layer model as bundle.json "
                f"states it, but {sorted(wanted ^ found)[:4]} differ. Convert the model again."
            )

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        total = self.length + len(ids)
        try:
            self._reserve(total)
            if len(self._logits) < len(rows):
                self._logits = np.empty((len(rows), self.vocab), np.float32)
            logits = self._logits[: len(rows)]
            held = (
                self._graph.bind_input("input_ids", np.asarray([ids], np.int64)),
                self._graph.bind_input("attention_mask", self._mask[:, :total]),
                self._graph.bind_input("rows", np.asarray(rows, np.int64)),
                self._graph.bind_output("logits", logits),
            )
            self._graph.run()
            del held  # the binding holds addresses only
        except MemoryError as error:
            raise self._out_of_memory(total) from error
        except Exception as error:  # ONNX Runtime's exceptions have no base of their own
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
        """Grows the buffers to `total` tokens, keeping the first `self.length`."""
        if total <= self._capacity:
            return
        capacity = min(max(MIN_BUFFER, 1 << (total - 1).bit_length()), self.context)
        shape = (1, self._heads, capacity, self._head_dim)
        grown: list[NDArray[np.float32]] = []
        for index in range(len(self._names)):
            # Pages without a token take no memory.
            buffer = np.empty(shape, np.float32)
            if self.length:
                buffer[:, :, : self.length] = self._caches[index][:, :, : self.length]
            grown.append(buffer)
        # An interrupt between two bindings must not leave one to a freed buffer: until all are bound the
        # capacity is 0, and the next pass binds the copies again.
        self._caches, self._capacity = grown, 0
        for name, buffer in zip(self._names, grown, strict=True):
            self._graph.bind_input(f"past_key_values.{name}", buffer)
            self._graph.bind_output(f"present.{name}", buffer)
        self._mask = np.ones((1, capacity), np.int64)
        self._capacity = capacity
