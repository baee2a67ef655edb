"""GenaiEngine: a model on onnxruntime-genai, for applications that ship that library already.

Responsible for the library's generator and its pitfalls. Not responsible for selecting the engine (see
`runtime`). Needs a bundle with `genai_config.json`. The library returns the logits of a pass's last token
only, so a pass with several wanted rows is run in as many parts: fill with `score_anchors=False` where speed
counts.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from edge_runtime.bundle.bundle import Bundle, ModelShape
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.engine.ort_engine import checked_context
from edge_runtime.errors import EngineError
from edge_runtime.system import performance_cores

CONFIG = "genai_config.json"
GRAPH = "genai.onnx"


def genai_library() -> Any:
    """The module `onnxruntime_genai`; raises EngineError where it is not installed."""
    try:
        return importlib.import_module("onnxruntime_genai")
    except ImportError as error:
        raise EngineError(
            "expected the package onnxruntime-genai, found none: pip install onnxruntime-genai, "
            "or use the default engine, onnxruntime"
        ) from error


class GenaiEngine(Engine):
    """Runs a bundle through `onnxruntime_genai.Generator`. Not thread-safe; forks may run beside it.

    Tokens are only ever appended: a token sampled by `generate_next_token` is not run when others are
    appended after it, and the logits are silently wrong. The cache is allocated at its full size.
    """

    def __init__(self, model: Any, shape: ModelShape, *, context: int) -> None:
        super().__init__(context=context, vocab=shape.vocab_size)
        self._model, self._shape = model, shape
        genai = genai_library()
        parameters = genai.GeneratorParams(model)
        parameters.set_search_options(max_length=context)
        self._generator = genai.Generator(model, parameters)
        self._logits: Logits = np.empty((0, self.vocab), np.float32)

    def fork(self, tokens: int = 0) -> Self:
        """As an empty cache: the library does not copy one."""
        other = type(self)(self._model, self._shape, context=self.context)
        other.turns = self.turns
        return other

    @property
    def cache_bytes(self) -> int:
        shape = self._shape
        return 8 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * self.context

    @classmethod
    def open(cls, bundle: Bundle, *, context: int | None = None, threads: int | None = None) -> GenaiEngine:
        """The engine of a bundle's chosen variant. Raises ContextError or EngineError."""
        genai = genai_library()
        size = checked_context(bundle, context)
        graph = bundle.graph_path.with_name(GRAPH)
        name = str(graph.relative_to(bundle.path))
        if not (bundle.path / CONFIG).is_file() or not graph.is_file():
            raise EngineError(
                f"{bundle.path}: expected {CONFIG} and {name}, found at most one. "
                "Convert the model again, or use the default engine, onnxruntime."
            )
        threads = performance_cores() if threads is None else threads
        decoder = {"filename": name, "session_options": {"intra_op_num_threads": threads}}
        try:
            config = genai.Config(str(bundle.path))
            config.overlay(json.dumps({"model": {"decoder": decoder}}))
            model = genai.Model(config)
        except Exception as error:  # the library's exceptions have no base of their own
            raise EngineError(
                f"{graph}: expected a model onnxruntime-genai can load, found: {error}"
            ) from error
        return cls(model, bundle.manifest.model, context=size)

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        if len(self._logits) < len(rows):
            self._logits = np.empty((len(rows), self.vocab), np.float32)
        try:
            # Rewound tokens, and those of an interrupted pass, are dropped here, before the next pass.
            if self._generator.token_count() != self.length:
                self._generator.rewind_to(self.length)
            start = 0
            for index, row in enumerate(rows):
                self._generator.append_tokens(np.asarray(ids[start : row + 1], np.int32))
                self._logits[index] = self._generator.get_logits().reshape(-1)
                start = row + 1
            if start < len(ids):
                self._generator.append_tokens(np.asarray(ids[start:], np.int32))
        except Exception as error:  # the library's exceptions have no base of their own
            raise EngineError(
                f"onnxruntime-genai failed on {len(ids)} tokens after {self.length}: {error}"
            ) from error
        return self._logits[: len(rows)]
