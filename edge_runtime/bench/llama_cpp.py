"""llama.cpp as an engine (through llama-cpp-python), to be timed beside ours.

The library is imported on use; its absence is an EngineError.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge_runtime.engine.base import Engine, Logits
from edge_runtime.errors import EngineError


def library() -> Any:
    """The module `llama_cpp`; raises EngineError where it is not installed."""
    try:
        return importlib.import_module("llama_cpp")
    except ImportError as error:
        raise EngineError(
            "expected the package llama-cpp-python, found none: pip install llama-cpp-python"
        ) from error


class LlamaEngine(Engine):
    """Runs a GGUF file on llama.cpp, with default settings except context and threads."""

    def __init__(self, path: Path, vocab: int, *, context: int, threads: int) -> None:
        super().__init__(context=context, vocab=vocab)
        llama = self._llama = library()
        if not path.is_file():
            raise EngineError(f"{path}: expected a GGUF file, found none")
        # Referenced for as long as it may be called.
        self._quiet = llama.llama_log_callback(lambda *_: None)
        llama.llama_log_set(self._quiet, ctypes.c_void_p())
        llama.llama_backend_init()
        self._model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
        if not self._model:
            raise EngineError(f"{path}: expected a GGUF file that llama.cpp can load, found another")
        found = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
        if found != vocab:
            raise EngineError(f"{path}: expected a vocabulary of {vocab} as the bundle has, found {found}")
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = context
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.no_perf = True
        self._state = llama.llama_init_from_model(self._model, parameters)
        if not self._state:
            raise EngineError(
                f"{path}: llama.cpp cannot make a context of {context} tokens: use a shorter one"
            )
        self._memory = llama.llama_get_memory(self._state)
        self._batch = llama.llama_batch_init(context, 0, 1)

    def rewind(self, length: int) -> None:
        super().rewind(length)
        self._llama.llama_memory_seq_rm(self._memory, 0, length, -1)

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        wanted, batch = set(rows), self._batch
        batch.n_tokens = len(ids)
        for index, id_ in enumerate(ids):
            batch.token[index] = id_
            batch.pos[index] = self.length + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = index in wanted
        code = self._llama.llama_decode(self._state, batch)
        if code:
            raise EngineError(f"llama.cpp failed on {len(ids)} tokens after {self.length}: code {code}")
        if not rows:
            return np.empty((0, self.vocab), np.float32)
        return np.ctypeslib.as_array(self._llama.llama_get_logits(self._state), (len(rows), self.vocab))
