"""gzip and zstd with bounded decompression.

Responsible for refusing a decompression bomb before memory is allocated for it. Not responsible for payloads.
"""

from __future__ import annotations

import gzip
import zlib

import zstandard

from payload.errors import MalformedPayloadError, OversizedPayloadError

_ZSTD_LEVEL = 19
_MAX_WINDOW = 1 << 20


def gzip_compress(data: bytes) -> bytes:
    """One gzip member; without a time stamp, so that equal data gives equal bytes."""
    return gzip.compress(data, 9, mtime=0)


def zstd_compress(data: bytes) -> bytes:
    """One frame without a checksum (the payload has its own), with its content size."""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=False).compress(data)


def gzip_decompress(data: bytes, most: int, what: str) -> bytes:
    """Decompress one gzip member to at most `most` bytes. Raises a PayloadError for anything else."""
    decompressor = zlib.decompressobj(wbits=31)
    try:
        out = decompressor.decompress(data, most + 1)
    except zlib.error as error:
        raise MalformedPayloadError(f"{what}: expected a gzip stream, found {error}") from None
    if len(out) > most:
        raise OversizedPayloadError(f"{what}: expected at most {most} bytes after decompression, found more")
    if not decompressor.eof or decompressor.unused_data:
        raise MalformedPayloadError(f"{what}: expected exactly one whole gzip stream, found a part or more")
    return out


def zstd_decompress(data: bytes, most: int, what: str) -> bytes:
    """Decompress one zstd frame to at most `most` bytes. Raises a PayloadError for anything else."""
    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN or frame.dict_id:
            raise MalformedPayloadError(f"{what}: expected a zstd frame with its size and no dictionary")
        if frame.content_size > most or frame.window_size > _MAX_WINDOW:
            raise OversizedPayloadError(
                f"{what}: expected at most {most} bytes after decompression, {frame.content_size} claimed"
            )
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        out = decompressor.decompress(data)
    except zstandard.ZstdError as error:
        raise MalformedPayloadError(f"{what}: expected a zstd frame, found {error}") from None
    if not decompressor.eof or decompressor.unused_data or len(out) != frame.content_size:
        raise MalformedPayloadError(f"{what}: expected exactly one whole zstd frame, found a part or more")
    return out
