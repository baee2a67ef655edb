"""The converter: turns a Hugging Face checkpoint or a GGUF file into a model bundle for the device.

The names are loaded when they are first used: most modules of this package need neither torch nor onnx, and
can be imported where these are not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports

if TYPE_CHECKING:
    from convert.check.verify import Thresholds
    from convert.conversion import convert
    from convert.errors import ConvertError, VerificationError

__all__ = ["ConvertError", "Thresholds", "VerificationError", "convert"]

_MODULES = {
    "ConvertError": "errors",
    "Thresholds": "check.verify",
    "VerificationError": "errors",
    "convert": "conversion",
}

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports unknown names
    __getattr__ = lazy_exports(__name__, _MODULES)
