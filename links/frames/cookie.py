"""Cookies: how a device shows that it receives at the address that its frames state.

Responsible for the bytes of a challenge and of a question that carries the cookie of one. Not responsible for
making cookies (see `links.gateway.limits`) nor for when one is asked for.

    challenge             byte 0 kind; flags 0; byte 1-2 request id; then the cookie
    question with cookie  byte 0 kind; flags 0; byte 1-2 request id; then the cookie; then the question's
                          frame without its bytes 1-2

A challenge is no larger than the smallest question: who forges an address gains nothing by it. Neither has a
check of its own: a changed cookie is not the right one, and the question's check is behind it. No other frame
becomes a challenge where one bit is changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from links.frames.kinds import HEAD_BYTES, FrameHead, FrameKind, check_id, head_bytes, peek_frame
from payload.bytesio import Reader
from payload.errors import AnchorRangeError, FrameKindError, MalformedPayloadError

COOKIE_BYTES = 4
"""A guess is right once in 2^32."""


@dataclass(frozen=True)
class Challenge:
    """Asks for the question again, with this cookie.

    id: the question's request id.
    """

    id: int
    cookie: bytes

    def __post_init__(self) -> None:
        check_id(self.id)
        if len(self.cookie) != COOKIE_BYTES:
            raise AnchorRangeError(f"cookie: expected {COOKIE_BYTES} bytes, found {len(self.cookie)}")


def challenge_frame(challenge: Challenge) -> bytes:
    """The frame of a challenge."""
    return head_bytes(FrameKind.CHALLENGE, challenge.id, 0) + challenge.cookie


def read_challenge(data: bytes, head: FrameHead) -> Challenge:
    """The challenge in a frame of that kind. Raises PayloadError subclasses."""
    _check_flags(head)
    reader = Reader(data, HEAD_BYTES)
    cookie = reader.take(COOKIE_BYTES, "cookie")
    if reader.left:
        raise MalformedPayloadError(f"challenge: expected its end, found {reader.left} bytes more")
    return Challenge(head.id, cookie)


def with_cookie(frame: bytes, cookie: bytes) -> bytes:
    """A question's frame behind a cookie; without one, b"", as it is."""
    if not cookie:
        return frame
    head = peek_frame(frame)
    if not head.kind.is_question:
        raise FrameKindError(f"frame: expected a question, found kind {head.kind.label}")
    return head_bytes(FrameKind.QUESTION_WITH_COOKIE, head.id, 0) + cookie + frame[:1] + frame[HEAD_BYTES:]


def split_cookie(data: bytes) -> tuple[bytes, bytes]:
    """A question's frame and the cookie before it, or b""; another frame comes back as it is.

    Raises PayloadError subclasses for what is no frame, or no question behind a cookie.
    """
    head = peek_frame(data)
    if head.kind is not FrameKind.QUESTION_WITH_COOKIE:
        return data, b""
    _check_flags(head)
    reader = Reader(data, HEAD_BYTES)
    cookie = reader.take(COOKIE_BYTES, "cookie")
    first = reader.take(1, "kind of a question")
    frame = first + data[1:HEAD_BYTES] + reader.rest()
    if not peek_frame(frame).kind.is_question:
        raise FrameKindError(f"frame: expected a question behind a cookie, found byte {first[0]:#04x}")
    return frame, cookie


def _check_flags(head: FrameHead) -> None:
    if head.flags:
        raise MalformedPayloadError(f"{head.kind.label}: expected flags 0, found {head.flags}")
