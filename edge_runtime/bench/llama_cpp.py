"""llama.cpp (through llama-cpp-python), and as an engine to be timed beside ours.

The library is imported on use; its absence is an EngineError. Of its log the last error is kept.
"""

from __future__ import annotations

import ctypes
import importlib
from collections import deque
from collections.abc import Container, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edge_runtime.engine.base import Engine, Logits
from edge_runtime.errors import EngineError

_ERROR = 4  # the level of llama.cpp's log
_errors: deque[str] = deque(maxlen=1)


def library() -> Any:
    """The module `llama_cpp`; raises EngineError where it is not installed."""
    try:
        return importlib.import_module("llama_cpp")
    except ImportError as error:
        raise EngineError(
            "expected the package llama-cpp-python, found none: pip install llama-cpp-python"
        ) from error


@cache
def quiet_library() -> Any:
    """The library, set up, with the rest of its log dropped; raises EngineError."""
    llama = library()
    llama.llama_log_set(_keep(llama), ctypes.c_void_p())
    llama.llama_backend_init()
    return llama


@cache
def _keep(llama: Any) -> Any:
    """The callback, referenced for as long as it may be called."""

    def keep(level: int, text: bytes, _: object) -> None:
        if level == _ERROR:
            _errors.append(text.decode("utf-8", "replace").strip())

    return llama.llama_log_callback(keep)


def last_error() -> str:
    """The last error of llama.cpp's log."""
    return _errors[-1] if _errors else "no reason given"


def put(batch: Any, ids: Iterable[int], first: int, sequence: int, wanted: Container[int]) -> None:
    """Adds tokens to a batch, at the positions of a sequence from `first` on.

    wanted: the places in the batch whose logits are computed.
    """
    for position, id_ in enumerate(ids, first):
        at = batch.n_tokens
        batch.token[at], batch.pos[at], batch.n_seq_id[at] = id_, position, 1
        batch.seq_id[at][0], batch.logits[at] = sequence, at in wanted
        batch.n_tokens = at + 1


class LlamaEngine(Engine):
    """Runs a GGUF file on llama.cpp, with default settings except context and threads."""

    def __init__(self, path: Path, vocab: int, *, context: int, threads: int) -> None:
        super().__init__(context=context, vocab=vocab)
        llama = self._llama = quiet_library()
        if not path.is_file():
            raise EngineError(f"{path}: expected a GGUF file, found none")
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
        self._batch.n_tokens = 0
        put(self._batch, ids, self.length, 0, set(rows))
        code = self._llama.llama_decode(self._state, self._batch)
        if code:
            raise EngineError(f"llama.cpp failed on {len(ids)} tokens after {self.length}: code {code}")
        if not rows:
            return np.empty((0, self.vocab), np.float32)
        return np.ctypeslib.as_array(self._llama.llama_get_logits(self._state), (len(rows), self.vocab))
