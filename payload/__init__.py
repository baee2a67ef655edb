"""The payload: anchors, the contract they belong to, the wire format and its codecs.

The names of `__all__` are imported on first use: errors and command-line conventions need no codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports
from common.version import __version__ as __version__

if TYPE_CHECKING:
    from payload.anchors import AnchorSet as AnchorSet
    from payload.codecs.predictive import TOLERANCE as TOLERANCE
    from payload.codecs.predictive import DecodedToken as DecodedToken
    from payload.codecs.predictive import Predictor as Predictor
    from payload.codecs.template import TokenBytes as TokenBytes
    from payload.contract import Contract as Contract
    from payload.errors import PayloadError as PayloadError
    from payload.extras import NO_EXTRAS as NO_EXTRAS
    from payload.extras import Extras as Extras
    from payload.extras import confidence_level as confidence_level
    from payload.extras import doubt as doubt
    from payload.header import Codec as Codec
    from payload.header import Header as Header
    from payload.header import peek as peek
    from payload.shared import Base as Base
    from payload.shared import Shared as Shared
    from payload.wire import AUTO as AUTO
    from payload.wire import Decoding as Decoding
    from payload.wire import decode as decode
    from payload.wire import encode as encode
else:
    __all__, __getattr__ = lazy_exports(__name__, __file__)
