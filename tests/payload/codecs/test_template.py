"""The text template: ids come back although text is what travels, and nothing unpacks beyond its bound."""

from __future__ import annotations

import time
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload import AnchorSet
from payload.codecs.compression import deflate, gzip_compress, gzip_decompress, inflate
from payload.codecs.template import decode_template, encode_template
from payload.errors import AnchorRangeError, MalformedPayloadError, OversizedPayloadError, PayloadError
from tests.vectors.toy_vocabulary import PIECES, ToyTokens, contract

TOY = contract()
TOKENS = ToyTokens()
A, B, AB = PIECES.index(b"a"), PIECES.index(b"b"), PIECES.index(b"ab")


def body(*ids: int, positions: tuple[int, ...] | None = None) -> bytes:
    places = positions or tuple(range(len(ids)))
    return encode_template(AnchorSet(places, ids, 64, TOY), TOKENS, bytes)


def test_the_template_is_the_text_with_a_nul_for_every_gap() -> None:
    assert body(AB, A, positions=(0, 3)) == bytes([64, 0, 0]) + b"ab\0\0a"


def test_ids_that_text_would_change_are_patched() -> None:
    # "a" + "b" tokenises to the one token "ab": the first is left out of the text and listed.
    assert body(A, B) == bytes([64, 0, 1, 0, A]) + b"\0b"


@given(st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_any_ids_come_back(ids: list[int], data: st.DataObject) -> None:
    """NUL bytes, halves of characters and empty tokens among them."""
    positions = sorted(data.draw(st.sets(st.integers(0, 60), min_size=len(ids), max_size=len(ids))))
    packed = body(*ids, positions=tuple(positions))
    assert decode_template(packed, TOKENS, lambda d, most, what: d) == (
        tuple(positions),
        tuple(ids),
        64,
        None,
    )


@pytest.mark.parametrize(("compress", "decompress"), [(gzip_compress, gzip_decompress), (deflate, inflate)])
def test_unpacking_is_bounded(
    compress: Callable[[bytes], bytes], decompress: Callable[[bytes, int, str], bytes]
) -> None:
    bomb = compress(bytes(50_000_000))
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(OversizedPayloadError):
        decompress(bomb, 1000, "text")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    assert time.process_time() - start < 0.5
    assert compress(b"abc") == compress(b"abc")
    assert decompress(compress(b"abc"), 3, "text") == b"abc"
    whole = compress(b"abc")
    for broken in (b"", b"abc", zlib.compress(b"abc"), whole[:-1], whole + b"x", whole + whole):
        with pytest.raises(MalformedPayloadError):
            decompress(broken, 1000, "text")


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (bytes([1, 0, 0]) + b"ab\0a", AnchorRangeError),
        (bytes([64, 0, 1, 0, A]) + b"a", MalformedPayloadError),
        (bytes([64, 0, 0]) + b"ab\0", MalformedPayloadError),
        (bytes([64, 0, 1, 5, A]) + b"ab", MalformedPayloadError),
        (bytes([64, 0, 0]) + b"\xff", MalformedPayloadError),
        (bytes([0x80, 0x00]), MalformedPayloadError),
        (b"\xff\xff\xff\xff\xff\x01", MalformedPayloadError),
    ],
)
def test_broken_bodies_are_refused(changed: bytes, error: type[PayloadError]) -> None:
    with pytest.raises(error):
        decode_template(changed, TOKENS, lambda d, most, what: d)
