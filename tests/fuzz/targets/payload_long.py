"""Long payloads: time in proportion to the bytes, whatever is in them. Inputs are read as in `payload`."""

from __future__ import annotations

import numpy as np

from payload import AnchorSet, Codec, Shared, encode
from tests.fuzz.targets.payload import ALLOWED, QWEN, TOKENS, TOY, run

__all__ = ["ALLOWED", "INSTRUMENTED", "MAX_BYTES", "run", "seeds"]

INSTRUMENTED = ("payload.wire",)
"""The codecs run at their own speed; what leads them somewhere new is `payload`'s to find."""

MAX_BYTES = 1 << 15


def seeds() -> list[bytes]:
    """Tokens that no context predicts, of both vocabularies, then each of them again in another order."""
    luck, out = np.random.default_rng(1), []
    for bit, reader in ((0, TOY), (1, QWEN)):
        for count in (256, 1024):
            ids = [int(each) for each in luck.integers(0, reader.vocab_size, count)]
            ids += [int(each) for each in luck.permutation(ids)]
            anchors = AnchorSet(tuple(range(0, 4 * count, 2)), tuple(ids), 4 * count, reader)
            out.append(bytes([4 | 16 | bit, 0]) + encode(anchors, Shared(reader))[4:])
    anchors = AnchorSet(
        tuple(range(2048)), tuple(int(each) for each in luck.integers(0, 256, 2048)), 4096, TOY
    )
    out.append(b"\4\0" + encode(anchors, Shared(TOY, tokens=TOKENS), Codec.TEMPLATE_GZIP)[4:])
    return out
