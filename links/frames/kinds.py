"""The first bytes of every frame: its kind and its request id.

Responsible for the kinds, the bounds of a frame and reading what stands before any check. Not responsible for
what follows (see `question`, `reply` and `cookie`).

    byte 0   0 (2 bits: no version of a payload), kind (3 bits), flags of the kind (3 bits)
    byte 1-2 request id, big-endian
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from payload.bytesio import Reader
from payload.errors import (
    AnchorRangeError,
    FrameKindError,
    OversizedPayloadError,
    VersionError,
)

MAX_FRAME_BYTES = 8192
"""More than any link carries in one datagram that is meant to be short; refused before anything is read."""

MAX_PARTS = 64
"""Answer frames of one chain."""

MAX_REQUEST_ID = 0xFFFF

HEAD_BYTES = 3


class FrameKind(IntEnum):
    """The kind of a frame; of a question, the codec of its text too."""

    QUESTION_UTF8 = 0
    QUESTION_COMPACT = 1
    QUESTION_PREDICTIVE = 2
    ANSWER = 3
    REFUSAL = 4
    QUESTION_WITH_COOKIE = 5
    CHALLENGE = 7

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")

    @property
    def is_question(self) -> bool:
        return self <= FrameKind.QUESTION_PREDICTIVE


class FrameHead(NamedTuple):
    """What a frame says before its check has been tested: good for sorting, never for acting on it.

    flags: three bits whose meaning the kind decides.
    """

    kind: FrameKind
    id: int
    flags: int


def head_bytes(kind: FrameKind, id: int, flags: int) -> bytes:
    """The first HEAD_BYTES bytes of a frame."""
    return bytes([kind << 3 | flags]) + id.to_bytes(2, "big")


def peek_frame(data: bytes) -> FrameHead:
    """Kind and request id of a frame, not checked. Raises PayloadError subclasses for what is no frame."""
    if len(data) > MAX_FRAME_BYTES:
        raise OversizedPayloadError(
            f"frame: expected at most {MAX_FRAME_BYTES} bytes, found {len(data)}; this is not a frame"
        )
    head = Reader(data).take(HEAD_BYTES, "head of a frame")
    kind, known = head[0] >> 3, list(FrameKind)
    if head[0] >> 6:
        raise VersionError(
            f"frame: expected bits 7-6 of byte 0 to be 0, found {head[0]:#04x}; "
            + ("this is a payload without a frame" if head[0] >> 6 == 1 else "this is not a frame")
        )
    if kind not in known:
        raise FrameKindError(
            f"frame: expected kind {', '.join(f'{each.value} ({each.label})' for each in FrameKind)}, found "
            f"{kind} in byte 0 ({head[0]:#04x}); update this software to read it"
        )
    return FrameHead(FrameKind(kind), int.from_bytes(head[1:3], "big"), head[0] & 7)


def check_id(id: int) -> None:
    """Raises AnchorRangeError for a request id out of range."""
    if not 0 <= id <= MAX_REQUEST_ID:
        raise AnchorRangeError(f"request id: expected 0 to {MAX_REQUEST_ID}, found {id}")
