"""The text template: ids come back although text is what travels, and nothing unpacks beyond its bound."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from payload import AnchorSet
from payload.codecs.compression import gzip_compress, gzip_decompress, zstd_compress, zstd_decompress
from payload.codecs.template import decode_template, encode_template
from payload.errors import MalformedPayloadError, OversizedPayloadError, PayloadError
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
    assert decode_template(packed, TOY, TOKENS, lambda d, most, what: d) == (
        tuple(positions),
        tuple(ids),
        64,
        None,
    )


@pytest.mark.parametrize(
    ("compress", "decompress"), [(gzip_compress, gzip_decompress), (zstd_compress, zstd_decompress)]
)
def test_unpacking_is_bounded(compress: object, decompress: object) -> None:
    assert callable(compress)
    assert callable(decompress)
    bomb = compress(bytes(50_000_000))
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(OversizedPayloadError, match="at most 1000 bytes"):
        decompress(bomb, 1000, "text")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    assert time.process_time() - start < 0.5
    assert decompress(compress(b"abc"), 3, "text") == b"abc"
    for broken in (b"", b"abc", compress(b"abc")[:-1], compress(b"abc") + b"x"):
        with pytest.raises(PayloadError):
            decompress(broken, 1000, "text")


def test_a_zstd_frame_that_hides_its_size_is_refused() -> None:
    hidden = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000_000))
    with pytest.raises(MalformedPayloadError, match="with its size"):
        zstd_decompress(hidden, 1000, "text")


def test_a_zlib_stream_is_not_gzip() -> None:
    with pytest.raises(MalformedPayloadError, match="expected a gzip stream"):
        gzip_decompress(zlib.compress(b"abc"), 1000, "text")


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (bytes([1, 0, 0]) + b"ab\0a", "at most 1 positions"),
        (bytes([64, 0, 1, 0, A]) + b"a", "expected a gap there"),
        (bytes([64, 0, 0]) + b"ab\0", "end at the last anchor"),
        (bytes([64, 0, 1, 5, A]) + b"ab", "end at the last anchor"),
        (bytes([64, 0, 0]) + b"\xff", "expected UTF-8, found byte 0xff"),
        (bytes([0x80, 0x00]), "shortest form"),
        (b"\xff\xff\xff\xff\xff\x01", "of at most 5 bytes"),
    ],
)
def test_broken_bodies_are_named(changed: bytes, error: str) -> None:
    with pytest.raises(PayloadError, match=error):
        decode_template(changed, TOY, TOKENS, lambda d, most, what: d)


def test_gzip_bytes_do_not_carry_the_time() -> None:
    assert gzip_compress(b"abc") == gzip_compress(b"abc")
    assert gzip.decompress(gzip_compress(b"abc")) == b"abc"
