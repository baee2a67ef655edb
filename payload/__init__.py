"""The payload: anchors, the contract they belong to, the wire format and its codecs.

The names of `__all__` are imported on first use: errors and command-line conventions need no codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports

if TYPE_CHECKING:
    from payload.anchors import AnchorSet
    from payload.certainty import confidence_level, doubt
    from payload.codecs.predictive import TOLERANCE, DecodedToken, Predictor
    from payload.codecs.template import TokenBytes
    from payload.contract import Contract
    from payload.errors import PayloadError
    from payload.extras import NO_EXTRAS, Extras
    from payload.header import Codec, Header, peek
    from payload.shared import Base, Shared
    from payload.wire import AUTO, Decoding, decode, encode

__all__ = [
    "AUTO",
    "NO_EXTRAS",
    "TOLERANCE",
    "AnchorSet",
    "Base",
    "Codec",
    "Contract",
    "DecodedToken",
    "Decoding",
    "Extras",
    "Header",
    "PayloadError",
    "Predictor",
    "Shared",
    "TokenBytes",
    "confidence_level",
    "decode",
    "doubt",
    "encode",
    "peek",
]

_MODULES = {
    "AUTO": "wire",
    "AnchorSet": "anchors",
    "Base": "shared",
    "Codec": "header",
    "Contract": "contract",
    "DecodedToken": "codecs.predictive",
    "Decoding": "wire",
    "Extras": "extras",
    "Header": "header",
    "NO_EXTRAS": "extras",
    "PayloadError": "errors",
    "Predictor": "codecs.predictive",
    "Shared": "shared",
    "TOLERANCE": "codecs.predictive",
    "TokenBytes": "codecs.template",
    "confidence_level": "certainty",
    "decode": "wire",
    "doubt": "certainty",
    "encode": "wire",
    "peek": "header",
}

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports unknown names
    __getattr__ = lazy_exports(__name__, _MODULES)
