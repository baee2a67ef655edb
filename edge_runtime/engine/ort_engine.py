"""OrtEngine: a model on ONNX Runtime.

Responsible for the inputs and outputs of a bundle's graph, bound so that nothing is copied; the buffer of
logits is reused. Not responsible for which tokens to run (see `forced`), for the buffers of the KV cache (see
`caches`), nor for loading a graph (see `ort_session`).

Shapes: S tokens in a chunk, T tokens in the cache after it, R rows of logits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_runtime.bundle.bundle import Bundle, ModelShape
from edge_runtime.engine.base import MAX_CHUNK, Engine, Logits
from edge_runtime.engine.caches import KeyValueCache
from edge_runtime.engine.ort_session import BoundGraph, session_options, without_optimization
from edge_runtime.engine.prepack import PrepackCache
from edge_runtime.errors import ContextError, EngineError
from edge_runtime.system import performance_cores

PROBED = 9
"""Number of tokens run to compare two forms of a graph."""
MAX_SCORES_BYTES = 64 << 20
"""Attention whose scores of one pass could take more is computed in blocks, which can take 1.6 times as long
(ONNX Runtime 1.31 on x86).
"""


def checked_context(bundle: Bundle, context: int | None) -> int:
    """The given context, or by default the bundle's; raises ContextError for more than the bundle's."""
    if context is not None and not 0 < context <= bundle.context:
        raise ContextError(
            f"{bundle.path}: expected a context of 1 to {bundle.context} tokens, found {context}. "
            "Ask for less, or convert the model with a longer context."
        )
    return bundle.context if context is None else context


class OrtEngine(Engine):
    """Runs a bundle's graph. Not thread-safe; its forks may run beside it.

    The cache starts small and doubles as it fills, up to `context` tokens. It takes
    2 * layers * kv_heads * head_dim * 4 bytes per token.
    """

    def __init__(
        self,
        graph: Path,
        shape: ModelShape,
        *,
        context: int,
        threads: int | None = None,
        options: ort.SessionOptions | None = None,
    ) -> None:
        """Loads a graph of the given shape.

        options: by default `session_options` for `threads`.
        """
        super().__init__(context=context, vocab=shape.vocab_size)
        if options is None:
            options = session_options(performance_cores() if threads is None else threads)
        whole = 4 * shape.num_attention_heads * MAX_CHUNK * context <= MAX_SCORES_BYTES
        self._graph = BoundGraph(graph, options, whole_attention=whole)
        self._cache = KeyValueCache(self._graph, shape, context)
        self._check_names(graph)
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
        portable: bool = False,
    ) -> OrtEngine:
        """The engine of a bundle's chosen variant. Raises ContextError, EngineError or BundleFileError.

        context: most tokens of the cache; None for the bundle's context.
        threads: None for one per fast core.
        cache:   keeps prepacked weights of the bundle, which must be verified; None for none.
        portable: its graph whose logits agree across processors, for which there is no cache.
        """
        make = partial(cls, shape=bundle.manifest.model)
        size = checked_context(bundle, context)
        threads = performance_cores() if threads is None else threads

        def probe(graph: Path, options: ort.SessionOptions) -> Logits:
            engine = make(graph, context=PROBED, options=options)
            # The kernels of chunks, and those of single tokens.
            logits = [engine.append(ids, range(len(ids))).copy() for ids in (range(PROBED - 1), [0])]
            return np.concatenate(logits)

        if portable:
            return make(bundle.portable_path, context=size, threads=threads)
        if cache and (cache.usable() or (not cache.unfit() and cache.build(session_options(threads), probe))):
            options = without_optimization(session_options(threads))
            try:
                return make(cache.graph, context=size, options=options)
            except EngineError as error:
                logging.getLogger(__name__).warning("prepacked weights are not used: %s", error)
        return make(bundle.graph_path, context=size, threads=threads)

    @property
    def capacity(self) -> int:
        """Number of tokens that fit the cache buffer at its present size."""
        return self._cache.capacity

    def fork(self, tokens: int = 0) -> Self:
        other = super().fork(tokens)
        other._graph = self._graph.fork()
        other._cache = self._cache.fork(other._graph, tokens)
        other._logits = np.empty((0, self.vocab), np.float32)
        return other

    @property
    def cache_bytes(self) -> int:
        return self._cache.size()

    def _check_names(self, graph: Path) -> None:
        names = self._cache.names
        wanted = {"input_ids", "attention_mask", "rows"} | {f"past_key_values.{name}" for name in names}
        found = self._graph.inputs
        if wanted != found:
            raise EngineError(
                f"{graph}: expected the inputs of a {len(names) // 2}-layer model as bundle.json "
                f"states it, but {sorted(wanted ^ found)[:4]} differ. Convert the model again."
            )

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        total = self.length + len(ids)
        try:
            self._cache.prepare(self.length, total)
            if self._mask.shape[1] < total:
                self._mask = np.ones((1, self._cache.capacity), np.int64)
            if len(self._logits) < len(rows):
                self._logits = np.empty((len(rows), self.vocab), np.float32)
            logits = self._logits[: len(rows)]
            held = [
                self._graph.bind_input("input_ids", np.asarray([ids], np.int64)),
                self._graph.bind_input("attention_mask", self._mask[:, :total]),
                self._graph.bind_input("rows", np.asarray(rows, np.int64)),
                self._graph.bind_output("logits", logits),
            ]
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
        size = self._cache.size(total)
        return EngineError(
            f"out of memory: the cache of {total} tokens takes {size >> 20} MB beside the weights. "
            "Use a shorter prompt, --max-tokens, or a smaller variant."
        )
