"""The optional fields of a payload: prompt, session, steps, confidence.

Knows their bytes: a byte of flags, then the fields that are set, in the order of the flags. Does not know
anchors or the header.
"""

from __future__ import annotations

from dataclasses import dataclass

from payload.anchors import MAX_CANVAS, MAX_SESSION, MAX_STEPS
from payload.bytesio import Reader, varint
from payload.codecs.compression import unzstd, zstd
from payload.errors import MalformedPayloadError, OversizedPayloadError

MAX_PROMPT_BYTES = 1 << 16
"""UTF-8 bytes of a prompt that travels inside a payload."""

_PROMPT, _SESSION, _STEPS, _CONFIDENCE = 1, 2, 4, 8


@dataclass(frozen=True)
class Extras:
    """Optional fields; see `AnchorSet` for what each means. The default is a payload with none of them."""

    prompt: str | None = None
    session: bytes | None = None
    step: int = 0
    total_steps: int = 0
    confidence: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        """Empty where no field is set. Raises OversizedPayloadError for a prompt over MAX_PROMPT_BYTES."""
        flags, out = 0, bytearray()
        if self.prompt is not None:
            flags |= _PROMPT
            text = self.prompt.encode("utf-8")
            if len(text) > MAX_PROMPT_BYTES:
                raise OversizedPayloadError(
                    f"prompt: expected at most {MAX_PROMPT_BYTES} bytes to carry, found {len(text)}; "
                    "send the prompt beside the payload"
                )
            packed = zstd(text)
            # A packed size of 0 says that the text is stored as it is.
            body = packed if len(packed) < len(text) else text
            out += varint(len(text)) + varint(len(body) if body is packed else 0) + body
        if self.session is not None:
            flags |= _SESSION
            out += varint(len(self.session)) + self.session
        if self.step or self.total_steps:
            flags |= _STEPS
            out += varint(self.step) + varint(self.total_steps)
        if self.confidence:
            flags |= _CONFIDENCE
            out += varint(len(self.confidence)) + _pack_pairs(self.confidence)
        return bytes([flags]) + out if flags else b""

    @classmethod
    def read(cls, reader: Reader) -> Extras:
        at = reader.at
        flags = reader.take(1, "flags of the optional fields")[0]
        if not 0 < flags < 16:
            raise MalformedPayloadError(
                f"flags of the optional fields: expected 1 to 15 at byte {at}, found {flags}"
            )
        prompt: str | None = None
        session: bytes | None = None
        step = total = 0
        confidence: tuple[int, ...] = ()
        if flags & _PROMPT:
            prompt = _read_prompt(reader)
        if flags & _SESSION:
            size = reader.varint("session length", MAX_SESSION)
            if size == 0:
                raise MalformedPayloadError(f"session length: expected 1 to {MAX_SESSION}, found 0")
            session = reader.take(size, "session")
        if flags & _STEPS:
            step = reader.varint("step", MAX_STEPS)
            total = reader.varint("total steps", MAX_STEPS)
            if not step and not total:
                raise MalformedPayloadError("steps: expected a step or a total above 0, found 0 of 0")
        if flags & _CONFIDENCE:
            count = reader.varint("number of confidences", MAX_CANVAS)
            if count == 0:
                raise MalformedPayloadError("number of confidences: expected at least 1, found 0")
            confidence = _unpack_pairs(reader.take((count + 3) // 4, "confidences"), count)
        return cls(prompt, session, step, total, confidence)


def _read_prompt(reader: Reader) -> str:
    size = reader.varint("prompt length", MAX_PROMPT_BYTES)
    packed = reader.varint("packed prompt length", MAX_PROMPT_BYTES)
    if packed:
        text = unzstd(reader.take(packed, "prompt"), size, "prompt")
        if len(text) != size:
            raise MalformedPayloadError(f"prompt: expected {size} bytes after unpacking, found {len(text)}")
    else:
        text = reader.take(size, "prompt")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPayloadError(
            f"prompt: expected UTF-8, found byte {text[error.start]:#04x} at {error.start}"
        ) from None


def _pack_pairs(levels: tuple[int, ...]) -> bytes:
    """Four 2-bit levels a byte, the first in the lowest bits; unused bits are zero."""
    out = bytearray((len(levels) + 3) // 4)
    for index, level in enumerate(levels):
        out[index // 4] |= level << 2 * (index % 4)
    return bytes(out)


def _unpack_pairs(data: bytes, count: int) -> tuple[int, ...]:
    levels = tuple(data[index // 4] >> 2 * (index % 4) & 3 for index in range(count))
    if _pack_pairs(levels) != data:
        raise MalformedPayloadError("confidences: expected zero bits after the last one, found others")
    return levels
