"""What crosses the network: anchors, the contract they belong to, the wire format and its codecs."""

from payload.anchors import AnchorSet
from payload.contract import Contract
from payload.errors import PayloadError
from payload.template import TokenBytes
from payload.wire import AUTO, Base, Codec, Header, decode, encode, peek

__all__ = [
    "AUTO",
    "AnchorSet",
    "Base",
    "Codec",
    "Contract",
    "Header",
    "PayloadError",
    "TokenBytes",
    "decode",
    "encode",
    "peek",
]
