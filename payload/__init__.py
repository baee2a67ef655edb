"""What crosses the network: anchors, the contract they belong to, the wire format and its codecs."""

from payload.anchors import AnchorSet
from payload.contract import Contract
from payload.errors import PayloadError

__all__ = ["AnchorSet", "Contract", "PayloadError"]
