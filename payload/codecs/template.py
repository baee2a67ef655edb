"""Codec template-gzip (paper section 6.3): the anchors as text, one NUL byte per gap, compressed.

Responsible for writing a template and for reading it back by tokenising it. Tokenising does not always give
the same ids ("a" + "b" may be the one token "ab"), so every anchor that would not come back is a gap in the
text and is listed beside it as a patch. Not responsible for tokenising: it is given a `TokenBytes`.

Body: varint canvas, varint length + 1 (0 where unknown), varint number of patches, then for each patch
varint distance from the patch before it (from -1 for the first, less one) and varint id; then the
compressed template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from payload.anchors import MAX_CANVAS, AnchorSet
from payload.bytesio import Reader, varint
from payload.codecs.compression import gzip_compress, gzip_decompress
from payload.errors import AnchorRangeError, MalformedPayloadError, OversizedPayloadError

MAX_TEMPLATE_BYTES = 1 << 15
"""Bytes of the longest template, decompressed."""

Shape = tuple[tuple[int, ...], tuple[int, ...], int, int | None]
"""Positions, ids, canvas, length: what every codec's body holds."""


class TokenBytes(Protocol):
    """The part of a tokenizer that the codec needs."""

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text, special tokens not recognised and none added."""


def encode_template(
    anchors: AnchorSet, tokens: TokenBytes, compress: Callable[[bytes], bytes] = gzip_compress
) -> bytes:
    """The body of a template payload. Raises OversizedPayloadError for a text over MAX_TEMPLATE_BYTES."""
    known = anchors.by_position
    patched: dict[int, int] = {}
    for start, size in runs_of(anchors.positions):
        for index in _patches([known[p] for p in range(start, start + size)], tokens):
            patched[start + index] = known[start + index]
    text = bytearray()
    for position in range(anchors.positions[-1] + 1 if anchors.positions else 0):
        plain = position in known and position not in patched
        text += tokens.token_bytes(known[position]) if plain else b"\0"
    if len(text) > MAX_TEMPLATE_BYTES:
        raise OversizedPayloadError(
            f"template: expected at most {MAX_TEMPLATE_BYTES} bytes of text, found {len(text)}; "
            "use codec compact"
        )
    out = bytearray(varint(anchors.canvas))
    out += varint(0 if anchors.length is None else anchors.length + 1) + varint(len(patched))
    previous = -1
    for position, token in patched.items():
        out += varint(position - previous - 1) + varint(token)
        previous = position
    return bytes(out) + compress(bytes(text))


def decode_template(
    body: bytes,
    tokens: TokenBytes,
    decompress: Callable[[bytes, int, str], bytes] = gzip_decompress,
) -> Shape:
    """The shape in a template body. Raises PayloadError subclasses for a body that breaks a rule."""
    reader = Reader(body)
    canvas = reader.varint("canvas", MAX_CANVAS)
    length = reader.varint("length", MAX_CANVAS + 1)
    found: dict[int, int] = {}
    previous = -1
    for _ in range(reader.varint("number of patches", MAX_CANVAS)):
        previous += 1 + reader.varint("patch distance", MAX_CANVAS)
        found[previous] = reader.varint("patch id", 0x7FFFFFFF)
    text = decompress(reader.rest(), MAX_TEMPLATE_BYTES, "template")
    position = 0
    for index, segment in enumerate(text.split(b"\0")):
        position += index > 0
        if not segment:
            continue
        for token in tokens.encode(_utf8(segment)):
            if position >= canvas:
                raise AnchorRangeError(f"template: expected at most {canvas} positions, found more")
            if position in found:
                raise MalformedPayloadError(f"patch at position {position}: expected a gap there, found text")
            found[position] = token
            position += 1
    positions = tuple(sorted(found))
    if (positions[-1] + 1 if positions else 0) != position:
        raise MalformedPayloadError("template: expected its end at the last anchor, found it elsewhere")
    return positions, tuple(found[p] for p in positions), canvas, length - 1 if length else None


def _utf8(segment: bytes) -> str:
    try:
        return segment.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPayloadError(
            f"template: expected UTF-8, found byte {segment[error.start]:#04x}"
        ) from None


def runs_of(ascending: Sequence[int]) -> list[tuple[int, int]]:
    """Start and size of every run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for number in ascending:
        if runs and number == sum(runs[-1]):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((number, 1))
    return runs


def _patches(ids: list[int], tokens: TokenBytes) -> list[int]:
    """Indices in a run that must be left out of the text so that the rest tokenises to the same ids."""
    out: list[int] = []
    todo = [(0, len(ids))]
    while todo:
        start, end = todo.pop()
        index = _first_difference(ids[start:end], tokens)
        if index is None:
            continue
        out.append(start + index)
        todo += [(start, start + index), (start + index + 1, end)]
    return sorted(out)


def _first_difference(ids: list[int], tokens: TokenBytes) -> int | None:
    """Index of the first id that tokenising the text of `ids` does not give back; None where all match."""
    pieces = [tokens.token_bytes(token) for token in ids]
    for index, piece in enumerate(pieces):
        if not piece or b"\0" in piece:
            return index
    whole = b"".join(pieces)
    try:
        back = tokens.encode(whole.decode("utf-8"))
    except UnicodeDecodeError as error:
        # The token that holds the offending byte; a character cut by a gap has no text of its own.
        end = 0
        for index, piece in enumerate(pieces):
            end += len(piece)
            if error.start < end:
                return index
        raise AssertionError("the offending byte lies in no token") from None
    for index, token in enumerate(ids):
        if index >= len(back) or back[index] != token:
            return index
    return None if len(back) == len(ids) else len(ids) - 1
