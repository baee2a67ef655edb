"""Baselines of the benchmark: other programs that run the same model.

Responsible for loading, running and rewinding models of llama.cpp (through llama-cpp-python), transformers
and onnxruntime-genai's own loop. Not responsible for filling answers (see `ort_engine`, `genai_engine`). Each
library is imported on use; its absence is an EngineError.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.torch_cache import crop_cache
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.base import BaseEngine, Engine, Logits
from edge_runtime.engine.genai_engine import GenaiEngine, genai_library, load_genai_model
from edge_runtime.errors import EngineError, UsageError

KINDS = ("genai", "genai:FOLDER", "llama.cpp:FILE.gguf", "transformers:FOLDER")


def open_baseline(spec: str, bundle: Bundle, *, context: int, threads: int) -> Engine:
    """The engine of a baseline as `--vs` names it. Raises UsageError or EngineError.

    genai runs the bundle itself, or a folder made by that library's own builder; the others run the named
    file or checkpoint, which must have the bundle's vocabulary.
    """
    kind, _, path = spec.partition(":")
    if kind == "genai" and not path:
        return GenaiEngine.open(bundle, context=context, threads=threads)
    if kind == "genai":
        model = load_genai_model(Path(path), threads=threads)
        return GenaiEngine(model, bundle.manifest.model, context=context)
    if kind == "llama.cpp" and path:
        return LlamaEngine(Path(path), bundle.manifest.model.vocab_size, context=context, threads=threads)
    if kind == "transformers" and path:
        vocab = bundle.manifest.model.vocab_size
        return TransformersEngine(Path(path), vocab, context=context, threads=threads)
    raise UsageError(f"--vs: expected one of {', '.join(KINDS)}, found {spec!r}")


def library(name: str, package: str) -> Any:
    """A library that is imported on use; raises EngineError where its package is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EngineError(f"expected the package {package}, found none: pip install {package}") from error


class LlamaEngine(BaseEngine):
    """Runs a GGUF file on llama.cpp, with default settings except context and threads."""

    def __init__(self, path: Path, vocab: int, *, context: int, threads: int) -> None:
        super().__init__(context=context, vocab=vocab)
        llama = self._llama = library("llama_cpp", "llama-cpp-python")
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


class TransformersEngine(BaseEngine):
    """Runs a checkpoint on PyTorch in float32."""

    def __init__(self, folder: Path, vocab: int, *, context: int, threads: int) -> None:
        super().__init__(context=context, vocab=vocab)
        transformers = library("transformers", "transformers")
        self._torch = library("torch", "torch")
        self._torch.set_num_threads(threads)
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=self._torch.float32)
        except (OSError, ValueError) as error:
            raise EngineError(f"{folder}: expected a checkpoint, found: {error}") from error
        found = model.config.vocab_size
        if found != vocab:
            raise EngineError(f"{folder}: expected a vocabulary of {vocab} as the bundle has, found {found}")
        self._model = model.eval()
        self._cache = transformers.DynamicCache()

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        with self._torch.inference_mode():
            crop_cache(self._cache, self.length)
            result = self._model(
                self._torch.tensor([ids]),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=self._torch.tensor(list(rows), dtype=self._torch.long),
            )
        logits: Logits = result.logits[0].numpy()
        return logits


def genai_loop(model: Any, ids: Sequence[int], count: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Functions that prepare and run onnxruntime-genai's own greedy loop over `count` tokens after ids."""
    genai = genai_library()
    generator: Any = None

    def prepare() -> None:
        nonlocal generator
        parameters = genai.GeneratorParams(model)
        length = len(ids) + count + 2
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = genai.Generator(model, parameters)
        generator.append_tokens(np.asarray(ids, np.int32))
        generator.generate_next_token()  # samples from the prompt's logits, without a pass

    def run() -> None:
        for _ in range(count):
            generator.generate_next_token()

    return prepare, run
