"""gzip and raw deflate with bounded decompression.

Responsible for refusing a decompression bomb before memory is allocated for it. Not responsible for payloads.
"""

from __future__ import annotations

import gzip
import zlib

from payload.errors import MalformedPayloadError, OversizedPayloadError


def gzip_compress(data: bytes) -> bytes:
    """One gzip member; without a time stamp, so that equal data gives equal bytes."""
    return gzip.compress(data, 9, mtime=0)


def deflate(data: bytes) -> bytes:
    """One raw deflate stream (RFC 1951), without a checksum: the payload has its own."""
    return zlib.compress(data, 9, wbits=-zlib.MAX_WBITS)


def gzip_decompress(data: bytes, most: int, what: str) -> bytes:
    """Decompress one gzip member to at most `most` bytes. Raises a PayloadError for anything else."""
    if data[3:4] not in (b"", b"\0"):
        raise MalformedPayloadError(f"{what}: expected a gzip header without options, found flags {data[3]}")
    return _unpack(data, most, what, "gzip", 16 + zlib.MAX_WBITS)


def inflate(data: bytes, most: int, what: str) -> bytes:
    """Decompress one raw deflate stream in the same way."""
    return _unpack(data, most, what, "deflate", -zlib.MAX_WBITS)


def _unpack(data: bytes, most: int, what: str, name: str, wbits: int) -> bytes:
    decompressor = zlib.decompressobj(wbits)
    try:
        out = decompressor.decompress(data, most + 1)
    except zlib.error as error:
        raise MalformedPayloadError(f"{what}: expected a {name} stream, found {error}") from None
    if len(out) > most:
        raise OversizedPayloadError(f"{what}: expected at most {most} bytes after decompression, found more")
    if not decompressor.eof or decompressor.unused_data:
        raise MalformedPayloadError(f"{what}: expected exactly one whole {name} stream, found a part or more")
    return out
