"""What crosses the network: anchors, the contract they belong to, the wire format and its codecs."""

from payload.anchors import AnchorSet
from payload.codecs.predictive import Predictor, Step
from payload.codecs.template import TokenBytes
from payload.contract import Contract
from payload.errors import PayloadError
from payload.header import Base, Codec, Header, peek
from payload.wire import AUTO, Decoding, decode, encode

__all__ = [
    "AUTO",
    "AnchorSet",
    "Base",
    "Codec",
    "Contract",
    "Decoding",
    "Header",
    "PayloadError",
    "Predictor",
    "Step",
    "TokenBytes",
    "decode",
    "encode",
    "peek",
]
