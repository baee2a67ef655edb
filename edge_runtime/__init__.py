"""The edge runtime: turns a payload into text on the device.

    from edge_runtime import EdgeRuntime

    edge = EdgeRuntime.open("bundles/qwen2.5-0.5b")
    answer = edge.fill(edge.read(data))
    for token in answer:
        ...

Needs numpy, onnxruntime, tokenizers and zstandard only. The names of `__all__` are imported on first use, so
that `python -m edge_runtime.fill --help` loads no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports

if TYPE_CHECKING:
    from edge_runtime.bundle.bundle import Bundle
    from edge_runtime.bundle.lookup import find_bundles
    from edge_runtime.client.client import Client
    from edge_runtime.decode.acceptance import Sampling
    from edge_runtime.decode.answer import Answer, ServiceReport
    from edge_runtime.decode.draft_model import DraftModel
    from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, agreement
    from edge_runtime.decode.refine import Retract
    from edge_runtime.decode.streams import aiter_tokens, each
    from edge_runtime.errors import (
        BundleError,
        CloudRefusedError,
        CloudUnavailableError,
        ContextError,
        EdgeError,
        EngineError,
        UsageError,
    )
    from edge_runtime.online import ServiceOptions, ServiceRequest
    from edge_runtime.runtime import EdgeRuntime, FillRequest
    from edge_runtime.text.tokenizer import TextStream

__all__ = [
    "Answer",
    "Bundle",
    "BundleError",
    "Client",
    "CloudRefusedError",
    "CloudUnavailableError",
    "ContextError",
    "DraftModel",
    "EdgeError",
    "EdgeRuntime",
    "EngineError",
    "FillOptions",
    "FillRequest",
    "FillStats",
    "Retract",
    "Sampling",
    "ServiceOptions",
    "ServiceReport",
    "ServiceRequest",
    "Source",
    "TextStream",
    "Token",
    "UsageError",
    "agreement",
    "aiter_tokens",
    "each",
    "find_bundles",
]

_MODULES = {
    "Answer": "decode.answer",
    "Bundle": "bundle.bundle",
    "Client": "client.client",
    "DraftModel": "decode.draft_model",
    "EdgeRuntime": "runtime",
    "FillOptions": "decode.forced",
    "FillRequest": "runtime",
    "FillStats": "decode.forced",
    "Retract": "decode.refine",
    "Sampling": "decode.acceptance",
    "ServiceOptions": "online",
    "ServiceReport": "decode.answer",
    "ServiceRequest": "online",
    "Source": "decode.forced",
    "TextStream": "text.tokenizer",
    "Token": "decode.forced",
    "agreement": "decode.forced",
    "aiter_tokens": "decode.streams",
    "each": "decode.streams",
    "find_bundles": "bundle.lookup",
}
"""Modules of the names that are not in `errors`."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports unknown names
    __getattr__ = lazy_exports(__name__, {name: _MODULES.get(name, "errors") for name in __all__})
