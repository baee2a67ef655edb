"""The edge runtime: turns a payload into text on the device.

    from edge_runtime import EdgeRuntime

    edge = EdgeRuntime.open("bundles/qwen2.5-0.5b")
    answer = edge.fill(edge.read(data))
    for token in answer:
        ...

Needs numpy, onnxruntime and tokenizers only. The names of `__all__` are imported on first use, so
that `python -m edge_runtime.fill --help` loads no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports
from common.version import __version__ as __version__

if TYPE_CHECKING:
    from edge_runtime.bundle.lookup import find_bundles as find_bundles
    from edge_runtime.client.client import Client as Client
    from edge_runtime.decode.forced import FillOptions as FillOptions
    from edge_runtime.decode.forced import Source as Source
    from edge_runtime.decode.forced import Token as Token
    from edge_runtime.decode.refine import Retract as Retract
    from edge_runtime.decode.sampling import Sampling as Sampling
    from edge_runtime.decode.streams import aiter_tokens as aiter_tokens
    from edge_runtime.errors import CloudUnavailableError as CloudUnavailableError
    from edge_runtime.errors import EdgeError as EdgeError
    from edge_runtime.form import Form as Form
    from edge_runtime.grammar.grammar import Grammar as Grammar
    from edge_runtime.runtime import EdgeRuntime as EdgeRuntime
    from edge_runtime.session import EdgeSession as EdgeSession
    from edge_runtime.text.chat import Message as Message
else:
    __all__, __getattr__ = lazy_exports(__name__, __file__)
