"""The converter: turns a Hugging Face checkpoint or a GGUF file into a model bundle for the device.

The names are loaded when they are first used: most modules of this package need neither torch nor onnx, and
can be imported where these are not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports
from common.version import __version__ as __version__

if TYPE_CHECKING:
    from convert.check.verify import Thresholds as Thresholds
    from convert.conversion import convert as convert
    from convert.errors import ConvertError as ConvertError
    from convert.errors import VerificationError as VerificationError
else:
    __all__, __getattr__ = lazy_exports(__name__, __file__)
