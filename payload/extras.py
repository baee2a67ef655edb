"""Extras: the optional fields of a payload (prompt, steps, confidence).

Responsible for their meaning, bounds and bytes: a byte of flags, then the fields that are set, in the order
of the flags; and for the doubt that confidence levels stand for. Not responsible for anchors or header.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from payload.anchors import MAX_CANVAS, AnchorSet
from payload.bytesio import Reader, varint
from payload.codecs.compression import deflate, inflate
from payload.errors import AnchorRangeError, MalformedPayloadError, OversizedPayloadError

MAX_PROMPT_BYTES = 1 << 16
"""UTF-8 bytes of a prompt that travels inside a payload."""

MAX_STEPS = 1 << 20
"""More denoising steps than any schedule has."""

BOUNDS = (0.5, 0.8, 0.95)
"""The lowest probabilities of the levels of confidence 1, 2 and 3."""

MIDDLES = (0.25, 0.65, 0.875, 0.975)
"""The probability that each level stands for: the middle of its range."""

_PROMPT, _STEPS, _CONFIDENCE = 1, 4, 8


@dataclass(frozen=True)
class Extras:
    """Optional fields. A payload with the defaults carries none of them.

    prompt:     the user's prompt as text, at most MAX_PROMPT_BYTES of UTF-8.
    step, total_steps: denoising steps run and planned, each at most MAX_STEPS; 0 of 0 where unknown.
    confidence: confidence level of the diffusion model, 0 (lowest) to 3 (highest), one per anchor in the
                order of positions; or empty.

    Raises AnchorRangeError for steps or confidence levels out of range.
    """

    prompt: str | None = None
    step: int = 0
    total_steps: int = 0
    confidence: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.step < 0 or self.total_steps < 0 or max(self.step, self.total_steps) > MAX_STEPS:
            raise AnchorRangeError(
                f"steps: expected 0 to {MAX_STEPS}, found step {self.step} of {self.total_steps}"
            )
        if not all(0 <= level <= 3 for level in self.confidence):
            raise AnchorRangeError(
                f"confidence: expected levels 0 to 3, found {sorted(set(self.confidence))}"
            )

    def check(self, anchors: AnchorSet) -> None:
        """Raises AnchorRangeError where the confidence levels are not one per anchor."""
        if self.confidence and len(self.confidence) != len(anchors):
            raise AnchorRangeError(
                f"expected one confidence level per anchor, found {len(self.confidence)} for "
                f"{len(anchors)} anchors"
            )

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
            packed = deflate(text)
            # A packed size of 0 says that the text is stored as it is.
            body = packed if len(packed) < len(text) else text
            out += varint(len(text)) + varint(len(body) if body is packed else 0) + body
        if self.step or self.total_steps:
            flags |= _STEPS
            out += varint(self.step) + varint(self.total_steps)
        if self.confidence:
            flags |= _CONFIDENCE
            out += varint(len(self.confidence)) + _pack_pairs(self.confidence)
        return bytes([flags]) + out if flags else b""

    @classmethod
    def read(cls, reader: Reader) -> Extras:
        """The fields at the reader's position. Raises PayloadError subclasses."""
        at = reader.at
        flags = reader.take(1, "flags of the optional fields")[0]
        if not flags or flags & ~(_PROMPT | _STEPS | _CONFIDENCE):
            raise MalformedPayloadError(
                f"flags of the optional fields: expected some of 1, 4 and 8 at byte {at}, found {flags}"
            )
        prompt: str | None = None
        step = total = 0
        confidence: tuple[int, ...] = ()
        if flags & _PROMPT:
            prompt = _read_prompt(reader)
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
        return cls(prompt, step, total, confidence)


NO_EXTRAS = Extras()


def _read_prompt(reader: Reader) -> str:
    size = reader.varint("prompt length", MAX_PROMPT_BYTES)
    packed = reader.varint("packed prompt length", MAX_PROMPT_BYTES)
    if packed:
        text = inflate(reader.take(packed, "prompt"), size, "prompt")
        if len(text) != size:
            raise MalformedPayloadError(
                f"prompt: expected {size} bytes after decompression, found {len(text)}"
            )
    else:
        text = reader.take(size, "prompt")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPayloadError(
            f"prompt: expected UTF-8, found byte {text[error.start]:#04x} at {error.start}"
        ) from None


def _pack_pairs(levels: tuple[int, ...]) -> bytes:
    """Four 2-bit levels per byte, the first in the lowest bits; unused bits are zero."""
    out = bytearray((len(levels) + 3) // 4)
    for index, level in enumerate(levels):
        out[index // 4] |= level << 2 * (index % 4)
    return bytes(out)


def _unpack_pairs(data: bytes, count: int) -> tuple[int, ...]:
    levels = tuple(data[index // 4] >> 2 * (index % 4) & 3 for index in range(count))
    if _pack_pairs(levels) != data:
        raise MalformedPayloadError("confidences: expected zero bits after the last one, found others")
    return levels


def confidence_level(probability: float) -> int:
    """The level, 0 to 3, of a probability."""
    return bisect_right(BOUNDS, probability)


def doubt(levels: Sequence[int]) -> float | None:
    """One minus the mean probability that the levels stand for, 0.025 to 0.75.

    None where there are no levels: nothing is known then, which is not the same as no doubt.
    """
    if not levels:
        return None
    return 1 - sum(MIDDLES[level] for level in levels) / len(levels)
