"""The payload: anchors, the contract they belong to, the wire format and its codecs."""

from payload.anchors import AnchorSet
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
    "decode",
    "encode",
    "peek",
]
