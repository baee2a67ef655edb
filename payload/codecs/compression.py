"""General-purpose compression, bounded: gzip and zstd that never unpack more than they were told to expect.

Knows the two formats' headers well enough to refuse a bomb before memory is taken. Does not know payloads.
"""

from __future__ import annotations

import gzip
import zlib

import zstandard

from payload.errors import MalformedPayloadError, OversizedPayloadError

_ZSTD_LEVEL = 19
_MAX_WINDOW = 1 << 20


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)


def zstd(data: bytes) -> bytes:
    """One frame without a checksum (the payload has its own), with its content size."""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=False).compress(data)


def ungz(data: bytes, most: int, what: str) -> bytes:
    """Unpack one gzip member of at most `most` bytes. Raises a PayloadError for anything else."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        out = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise MalformedPayloadError(f"{what}: expected a gzip stream, found {error}") from None
    if len(out) > most:
        raise OversizedPayloadError(f"{what}: expected at most {most} bytes after unpacking, found more")
    if not unpacker.eof or unpacker.unused_data:
        raise MalformedPayloadError(f"{what}: expected exactly one whole gzip stream, found a part or more")
    return out


def unzstd(data: bytes, most: int, what: str) -> bytes:
    """Unpack one zstd frame of at most `most` bytes. Raises a PayloadError for anything else."""
    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN or frame.dict_id:
            raise MalformedPayloadError(f"{what}: expected a zstd frame with its size and no dictionary")
        if frame.content_size > most or frame.window_size > _MAX_WINDOW:
            raise OversizedPayloadError(
                f"{what}: expected at most {most} bytes after unpacking, found {frame.content_size} claimed"
            )
        unpacker = zstandard.ZstdDecompressor().decompressobj()
        out = unpacker.decompress(data)
    except zstandard.ZstdError as error:
        raise MalformedPayloadError(f"{what}: expected a zstd frame, found {error}") from None
    if not unpacker.eof or unpacker.unused_data or len(out) != frame.content_size:
        raise MalformedPayloadError(f"{what}: expected exactly one whole zstd frame, found a part or more")
    return out
