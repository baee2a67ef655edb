"""Frames that come back: one payload of an answer, or why there is none.

Responsible for the number of a payload in its chain, for refusals and their reasons, and for the check of
each. Not responsible for payloads (see `payload.wire`) nor for the order in which frames arrive.

    answer   byte 0 kind; flags: 4 the last of its chain; low two bits: part 0, 1, 2, or 3: a varint follows
             byte 1-2 request id; then part - 3 as that varint; then the payload, whose check also covers the
             bytes before it
    refusal  byte 0 kind; flags: the code; byte 1-2 request id; byte 3-4 check; then the detail
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from links.frames.cookie import Challenge, challenge_frame, read_challenge
from links.frames.kinds import (
    HEAD_BYTES,
    MAX_FRAME_BYTES,
    MAX_PARTS,
    FrameHead,
    FrameKind,
    check_id,
    head_bytes,
    peek_frame,
)
from payload.bytesio import Reader, varint
from payload.decisions import MARK as DECISIONS
from payload.errors import (
    AnchorRangeError,
    ChecksumError,
    FrameKindError,
    MalformedPayloadError,
    OversizedPayloadError,
    VersionError,
)
from payload.header import HEADER_BYTES, VERSION, crc16

MAX_RETRY_SECONDS = 86_400 * 7
IDENTITY_BYTES = 4
"""Of a contract's identity, in a refusal."""
MAX_NAME_BYTES = 32
"""Of the bundle's name behind it."""

_LAST = 4
_MORE_PARTS = 3
"""From this part on the flags do not hold its number."""


@dataclass(frozen=True)
class AnswerFrame:
    """One payload of the chain that answers a request.

    id:      the request's.
    part:    0, 1, 2, ...: each payload but the first is a delta to the one before.
    last:    whether no further part follows.
    payload: its bytes. What has changed on the way, in the payload or in the fields above, shows when it is
             decoded: the frame's check is the payload's own.
    """

    id: int
    part: int
    last: bool
    payload: bytes

    def __post_init__(self) -> None:
        check_id(self.id)
        if not 0 <= self.part < MAX_PARTS:
            raise AnchorRangeError(f"part: expected 0 to {MAX_PARTS - 1}, found {self.part}")
        _check_payload(self.payload)


class RefusalCode(IntEnum):
    """Why there is no answer."""

    OVERLOADED = 0
    """Busy, or over its quota: the same frame may be sent again later."""
    OTHER_CONTRACT = 1
    """The question is for another vocabulary, special ids or chat template."""
    NOT_UNDERSTOOD = 2
    """The frame breaks a rule of the format, or its check does not hold."""
    OTHER_PREDICTIONS = 3
    """The text cannot be read with this side's edge model: ask for it in codec compact or UTF-8."""
    TOO_LONG = 4
    """The question does not fit in the model's context, or no answer fits in the room stated."""
    NOT_ALLOWED = 5
    """A key is missing or not known, or the frame has been seen before."""
    FAILED = 6
    """The service cannot be reached or has failed."""


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered.

    retry_after: seconds after which the same frame may be sent again, 1 to a week; None where that does not
                 help or is not known.
    identity:    with OTHER_CONTRACT, the first 8 hex digits of the identity of this side's contract.
    bundle:      with it, the name of a bundle of that contract, in printable ASCII; "" for none.
    """

    id: int
    code: RefusalCode
    retry_after: int | None = None
    identity: str | None = None
    bundle: str = ""

    def __post_init__(self) -> None:
        check_id(self.id)
        if self.retry_after is not None and not 1 <= self.retry_after <= MAX_RETRY_SECONDS:
            raise AnchorRangeError(
                f"retry after: expected 1 to {MAX_RETRY_SECONDS} seconds, found {self.retry_after}"
            )
        if (self.identity is not None) != (self.code is RefusalCode.OTHER_CONTRACT):
            raise AnchorRangeError(
                f"refusal: expected an identity with {RefusalCode.OTHER_CONTRACT.name} only, found {self}"
            )
        name, most = self.bundle, MAX_NAME_BYTES if self.identity is not None else 0
        if len(name) > most or not (name.isascii() and name.isprintable()):
            raise AnchorRangeError(f"bundle: expected at most {most} printable letters, found {name!r:.80}")
        if self.identity is not None:
            if self.retry_after is not None:
                raise AnchorRangeError(f"refusal: expected no retry of another contract, found {self}")
            if len(self.identity) != 2 * IDENTITY_BYTES or set(self.identity) - set("0123456789abcdef"):
                raise AnchorRangeError(
                    f"identity: expected {2 * IDENTITY_BYTES} hex digits, found {self.identity!r}"
                )


def answer_room(largest: int, part: int = 0) -> int:
    """Bytes of the largest payload in an answer frame of `largest` bytes; below 1 where there is no room."""
    return min(largest, MAX_FRAME_BYTES) - len(_part_bytes(part)) - HEAD_BYTES


Reply = AnswerFrame | Refusal | Challenge
"""What comes back for a question."""


def encode_reply(reply: Reply) -> bytes:
    """The frame of what comes back. Raises OversizedPayloadError over MAX_FRAME_BYTES."""
    if isinstance(reply, Challenge):
        return challenge_frame(reply)
    if isinstance(reply, Refusal):
        head = head_bytes(FrameKind.REFUSAL, reply.id, reply.code)
        detail = bytes.fromhex(reply.identity or "") + reply.bundle.encode("ascii")
        if reply.retry_after is not None:
            detail = varint(reply.retry_after)
        return head + crc16(head + detail).to_bytes(2, "big") + detail
    flags = (_LAST if reply.last else 0) | min(reply.part, _MORE_PARTS)
    head = head_bytes(FrameKind.ANSWER, reply.id, flags) + _part_bytes(reply.part)
    data = head + _with_check_over(head, reply.payload)
    if len(data) > MAX_FRAME_BYTES:
        raise OversizedPayloadError(
            f"answer frame: expected at most {MAX_FRAME_BYTES} bytes, found {len(data)}; ask for a smaller "
            "payload"
        )
    return data


def decode_reply(data: bytes) -> Reply:
    """What a frame that came back holds. Raises PayloadError subclasses.

    A refusal is checked here; an answer where its payload is decoded, since only that binds it to contract,
    prompt and base.
    """
    head = peek_frame(data)
    if head.kind is FrameKind.REFUSAL:
        return _refusal(data, head)
    if head.kind is FrameKind.CHALLENGE:
        return read_challenge(data, head)
    if head.kind is not FrameKind.ANSWER:
        raise FrameKindError(
            f"frame: expected an answer, a refusal or a challenge, found kind {head.kind.label}; see "
            "decode_question"
        )
    reader = Reader(data, HEAD_BYTES)
    part = head.flags & 3
    if part == _MORE_PARTS:
        part += reader.varint("part", MAX_PARTS - 1 - _MORE_PARTS)
    before = data[: reader.at]
    payload = reader.rest()
    _check_payload(payload)
    return AnswerFrame(head.id, part, bool(head.flags & _LAST), _with_check_over(before, payload))


def _refusal(data: bytes, head: FrameHead) -> Refusal:
    reader = Reader(data, HEAD_BYTES)
    found = int.from_bytes(reader.take(2, "check"), "big")
    expected = crc16(data[:HEAD_BYTES] + data[HEAD_BYTES + 2 :])
    if found != expected:
        raise ChecksumError(
            f"checksum: expected {expected:04x}, found {found:04x} in bytes 3-4 of a refusal: the bytes were "
            "changed on their way; ignore it"
        )
    if head.flags not in list(RefusalCode):
        raise FrameKindError(
            f"refusal: expected code 0 to {max(RefusalCode).value}, found {head.flags}; update this software"
        )
    code = RefusalCode(head.flags)
    identity: str | None = None
    bundle, retry_after = "", None
    if code is RefusalCode.OTHER_CONTRACT:
        identity = reader.take(IDENTITY_BYTES, "identity of the contract").hex()
        bundle = reader.take(reader.left, "name of a bundle").decode("ascii", "replace")
    elif reader.left:
        retry_after = reader.varint("retry after", MAX_RETRY_SECONDS)
    if reader.left or retry_after == 0:
        raise MalformedPayloadError(
            f"refusal: expected its end, and no wait of 0, found {reader.left} bytes more, wait {retry_after}"
        )
    return Refusal(head.id, code, retry_after, identity, bundle)


def _part_bytes(part: int) -> bytes:
    return varint(part - _MORE_PARTS) if part >= _MORE_PARTS else b""


def _check_payload(payload: bytes) -> None:
    if len(payload) < HEADER_BYTES:
        raise MalformedPayloadError(
            f"answer frame: expected a payload of at least {HEADER_BYTES} bytes, found {len(payload)}"
        )
    if payload[0] >> 6 != VERSION and payload[0] & 0xFE != DECISIONS:
        raise VersionError(f"answer frame: expected a payload of version {VERSION}, found {payload[0]:#04x}")


def _with_check_over(before: bytes, payload: bytes) -> bytes:
    """The payload with its check extended to the bytes before it; the same again takes them off.

    A payload's check is CRC XOR binding: the CRC over its own bytes gives way to one over the whole frame.
    """
    covered = payload[:2] + payload[HEADER_BYTES:]
    check = int.from_bytes(payload[2:HEADER_BYTES], "big") ^ crc16(covered) ^ crc16(before + covered)
    return payload[:2] + check.to_bytes(2, "big") + payload[HEADER_BYTES:]
