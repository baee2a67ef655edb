"""Turns a Hugging Face checkpoint of the Qwen2 family into a model bundle for the device.

The names are loaded when they are first used: most modules of this package need neither torch nor onnx, and
can be imported where these are not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convert.conversion import convert
    from convert.errors import ConvertError, VerificationError
    from convert.verify import Thresholds

__all__ = ["ConvertError", "Thresholds", "VerificationError", "convert"]

_MODULES = {
    "ConvertError": "errors",
    "Thresholds": "verify",
    "VerificationError": "errors",
    "convert": "conversion",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
