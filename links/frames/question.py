"""Question frames: the user's text, what is wanted of the answer, and the request id.

Responsible for the fields, the choice of the text's codec, and the check that binds a frame to the contract,
and to the model file or the edge model that its text is coded with. Not responsible for coding the text (see
`question_text`) nor for the frames that come back (see `reply`).

    byte 0   kind: the text's codec; flags: 4 extent given, 2 room given, 1 no predictive payload
    byte 1-2 request id
    byte 3   tag, as in a payload
    byte 4-5 check: tested before anything is decoded
    then     a byte of the text's digest, tested after it (predictive only); extent (1 byte: a share of the
             steps in 1/200; 0: varint steps); room (varint); the text's body
"""

from __future__ import annotations

from dataclasses import dataclass

from common.errors import UserError
from links.frames.kinds import (
    HEAD_BYTES,
    MAX_FRAME_BYTES,
    FrameHead,
    FrameKind,
    check_id,
    head_bytes,
    peek_frame,
)
from links.frames.question_text import (
    MAX_QUESTION_BYTES,
    bounded_utf8,
    compact_body,
    other_predictions,
    predictive_body,
    read_compact,
    read_predictive,
    text_of,
    token_ids,
)
from payload.bytesio import Reader, varint
from payload.codecs.predictive import TOLERANCE, Predictor
from payload.codecs.template import TokenBytes
from payload.contract import Contract
from payload.errors import (
    AnchorRangeError,
    ChecksumError,
    CodecError,
    ContractMismatchError,
    FingerprintError,
    FrameKindError,
    MalformedPayloadError,
    OversizedPayloadError,
    PayloadError,
)
from payload.extras import MAX_STEPS
from payload.header import Codec, binding, crc16
from payload.shared import Shared
from payload.wire import AUTO

UTF8 = "utf-8"
"""The text as it is, for an encoder's choice; the others are those of a payload."""

SHARES = 200
"""A share of the steps is carried as a whole number of these parts."""

DIGEST_BYTES = 1
"""Of a predictive text's digest; what passes shows in the answer, whose check covers the prompt's ids."""

MAX_QUESTION_FRAME_BYTES = MAX_QUESTION_BYTES + 16
"""No text within its bound needs more: as UTF-8 it takes its own bytes behind at most 16."""

_EXTENT, _ROOM, _COMPACT = 4, 2, 1
QUESTION_HEADER_BYTES = HEAD_BYTES + 3
"""Before the fields and the text; a predictive text has DIGEST_BYTES more."""

_CHECK_AT, _FIELDS_AT = HEAD_BYTES + 1, QUESTION_HEADER_BYTES
_KIND = {
    UTF8: FrameKind.QUESTION_UTF8,
    Codec.COMPACT.label: FrameKind.QUESTION_COMPACT,
    Codec.PREDICTIVE.label: FrameKind.QUESTION_PREDICTIVE,
}


@dataclass(frozen=True)
class Question:
    """What a device asks for.

    id:       request id, 0 to 65,535: the same in every repeat, and in what comes back.
    text:     the user's text without the chat template, 1 to MAX_QUESTION_BYTES of UTF-8; or a conversation's
              (see `conversation`).
    fraction: share of the planned denoising steps, above 0 and at most 1, or
    steps:    their number, 1 to MAX_STEPS; neither is the service's own choice.
    room:     the largest payload, in bytes, that fits in a frame of the answer, 1 to MAX_FRAME_BYTES; None is
              what the link's frame leaves, as the other side knows it.
    predictive: whether the device can decode a payload of codec predictive.

    Raises PayloadError subclasses for a field out of range.
    """

    id: int
    text: str
    fraction: float | None = None
    steps: int | None = None
    room: int | None = None
    predictive: bool = True

    def __post_init__(self) -> None:
        check_id(self.id)
        bounded_utf8(self.text)
        if self.fraction is not None and self.steps is not None:
            raise AnchorRangeError(
                f"extent: expected a fraction or steps, found both ({self.fraction}, {self.steps})"
            )
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise AnchorRangeError(f"fraction: expected above 0 and at most 1, found {self.fraction}")
        if self.steps is not None and not 1 <= self.steps <= MAX_STEPS:
            raise AnchorRangeError(f"steps: expected 1 to {MAX_STEPS}, found {self.steps}")
        if self.room is not None and not 1 <= self.room <= MAX_FRAME_BYTES:
            raise AnchorRangeError(f"room: expected 1 to {MAX_FRAME_BYTES} bytes, found {self.room}")


def encode_question(
    question: Question, shared: Shared, codec: Codec | str = AUTO, *, tolerance: float = TOLERANCE
) -> bytes:
    """The frame of a question. A fraction is rounded to whole 1/200, and to one at least.

    shared: what the reader holds too: the contract; `tokens` for codecs compact and predictive; for the
            latter `predictor` as well: the edge model behind the chat template's opening, up to where the
            user's text begins.
    codec:  of the text: "utf-8", "compact", "predictive", or "auto": the smallest that `shared` allows and
            that gives the text back.
    tolerance: for codec predictive, see `predictive.encode`.

    Raises PayloadError subclasses where the codec cannot carry the text, and what the predictor raises.
    """
    label = codec.label if isinstance(codec, Codec) else codec
    if label != AUTO and label not in _KIND:
        raise CodecError(
            f"codec of a question: expected one of {', '.join(_KIND)} or {AUTO}, found {label!r}"
        )
    text = bounded_utf8(question.text)
    ids = token_ids(question.text, shared.tokens, shared.contract) if shared.tokens is not None else None
    if label in (Codec.COMPACT.label, Codec.PREDICTIVE.label):
        _tokens(shared)
        if ids is None:
            raise CodecError(
                f"codec {label}: expected a text that its tokens give back, found one that they do not "
                f"(special tokens, or characters that the tokenizer rewrites); use {UTF8} or {AUTO}"
            )
    written = []
    if label in (AUTO, UTF8):
        written.append(seal_question(question, FrameKind.QUESTION_UTF8, shared, text))
    if ids is not None and label in (AUTO, Codec.COMPACT.label):
        written.append(
            seal_question(question, FrameKind.QUESTION_COMPACT, shared, compact_body(ids, shared.contract))
        )
    if ids is not None and (
        label == Codec.PREDICTIVE.label or (label == AUTO and shared.predictor is not None)
    ):
        try:
            body, digest = predictive_body(ids, shared.contract, _predictor(shared), tolerance)
            written.append(seal_question(question, FrameKind.QUESTION_PREDICTIVE, shared, body, digest))
        except UserError:  # such as a text that is too long for the model
            if label != AUTO:
                raise
    return min(written, key=len)


def decode_question(data: bytes, shared: Shared) -> Question:
    """The question in a frame; for `shared` see `encode_question`.

    A frame for another contract is refused. Raises the subclass of PayloadError that names the fault.
    """
    _verify(data, _open(data)[0].kind, shared)
    head, digest, body = open_question(data)
    text = body
    if head.kind is FrameKind.QUESTION_COMPACT:
        text = read_compact(body, shared.contract, _tokens(shared))
    elif head.kind is FrameKind.QUESTION_PREDICTIVE:
        text, found = read_predictive(body, shared.contract, _tokens(shared), _predictor(shared))
        if found[:DIGEST_BYTES] != digest:
            raise FingerprintError(
                other_predictions(
                    f"expected a text with digest {digest.hex()}, found {found[:DIGEST_BYTES].hex()}"
                )
            )
    return Question(head.id, text_of(text), head.fraction, head.steps, head.room, predictive=head.predictive)


@dataclass(frozen=True)
class QuestionHead:
    """A question frame without its text; the fields are those of `Question`.

    body_bytes: of the coded text.
    """

    kind: FrameKind
    id: int
    fraction: float | None
    steps: int | None
    room: int | None
    predictive: bool
    body_bytes: int


def peek_question(data: bytes, shared: Shared) -> QuestionHead:
    """The fields of a question frame, without its text.

    The check is tested where `shared` holds what it covers. Raises PayloadError subclasses.
    """
    kind = _open(data)[0].kind
    if kind is not FrameKind.QUESTION_PREDICTIVE or shared.predictor is not None:
        _verify(data, kind, shared)
    return open_question(data)[0]


def open_question(data: bytes) -> tuple[QuestionHead, bytes, bytes]:
    """The head of a question frame, not checked, the byte of its digest or none, and the coded text."""
    head, reader = _open(data)
    predictive = head.kind is FrameKind.QUESTION_PREDICTIVE
    digest = reader.take(DIGEST_BYTES, "digest of the text") if predictive else b""
    fraction, steps, room = _read_fields(reader, head.flags)
    body = reader.rest()
    asked = QuestionHead(
        kind=head.kind,
        id=head.id,
        fraction=fraction,
        steps=steps,
        room=room,
        predictive=not head.flags & _COMPACT,
        body_bytes=len(body),
    )
    return asked, digest, body


def _verify(data: bytes, kind: FrameKind, shared: Shared) -> None:
    """Raises ContractMismatchError, FingerprintError or ChecksumError."""
    tag, expected_tag = data[HEAD_BYTES], _tag(kind, shared)
    found = int.from_bytes(data[_CHECK_AT:_FIELDS_AT], "big")
    if tag != expected_tag:
        ours = data[:HEAD_BYTES] + bytes([expected_tag]) + data[_FIELDS_AT:]
        if found != crc16(ours) ^ _binding(kind, shared):
            _refuse_tag(kind, tag, expected_tag, shared.contract)
        # All but the tag is a question for this side: the tag was changed on its way.
    expected = crc16(data[:_CHECK_AT] + data[_FIELDS_AT:]) ^ _binding(kind, shared)
    if found != expected:
        raise ChecksumError(
            f"checksum: expected {expected:04x}, found {found:04x} in bytes 4-5 of {len(data)}: the bytes "
            f"were changed on their way, or made for another contract than {shared.contract}; send them again"
        )


def _open(data: bytes) -> tuple[FrameHead, Reader]:
    head = peek_frame(data)
    if not head.kind.is_question:
        raise FrameKindError(f"frame: expected a question, found kind {head.kind.label}; see decode_reply")
    if len(data) > MAX_QUESTION_FRAME_BYTES:
        raise OversizedPayloadError(
            f"question frame: expected at most {MAX_QUESTION_FRAME_BYTES} bytes, found {len(data)}"
        )
    reader = Reader(data)
    reader.take(_FIELDS_AT, "head of a question")
    return head, reader


def seal_question(
    question: Question, kind: FrameKind, shared: Shared, body: bytes, digest: bytes = b""
) -> bytes:
    """The frame of a question around any body: adds fields, tag and check, tests nothing.

    digest: of the text, for a predictive body.
    """
    flags, fields = 0, b""
    if question.fraction is not None:
        flags, fields = _EXTENT, bytes([max(1, round(question.fraction * SHARES))])
    elif question.steps is not None:
        flags, fields = _EXTENT, b"\0" + varint(question.steps)
    if question.room is not None:
        flags, fields = flags | _ROOM, fields + varint(question.room)
    flags |= 0 if question.predictive else _COMPACT
    head = head_bytes(kind, question.id, flags) + bytes([_tag(kind, shared)])
    rest = digest[:DIGEST_BYTES] + fields + body
    check = crc16(head + rest) ^ _binding(kind, shared)
    return head + check.to_bytes(2, "big") + rest


def _read_fields(reader: Reader, flags: int) -> tuple[float | None, int | None, int | None]:
    """Fraction, steps and room."""
    fraction: float | None = None
    steps: int | None = None
    room: int | None = None
    if flags & _EXTENT:
        parts = reader.take(1, "share of the steps")[0]
        if parts > SHARES:
            raise MalformedPayloadError(f"share of the steps: expected at most {SHARES}, found {parts}")
        if parts:
            fraction = parts / SHARES
        else:
            steps = reader.varint("steps", MAX_STEPS)
    if flags & _ROOM:
        room = reader.varint("room", MAX_FRAME_BYTES)
    return fraction, steps, room


def _tag(kind: FrameKind, shared: Shared) -> int:
    if kind is FrameKind.QUESTION_PREDICTIVE:
        return _predictor(shared).identity[0]
    return bytes.fromhex(shared.contract.identity)[0]


def _binding(kind: FrameKind, shared: Shared) -> int:
    """Of a payload with that codec; UTF-8 depends on the contract alone, as the template codecs do."""
    if kind is FrameKind.QUESTION_PREDICTIVE:
        model = _predictor(shared)
        return binding(Codec.PREDICTIVE, shared.contract, model.prompt_ids, None, model.identity)
    codec = Codec.COMPACT if kind is FrameKind.QUESTION_COMPACT else Codec.TEMPLATE_GZIP
    return binding(codec, shared.contract, None, None)


def _refuse_tag(kind: FrameKind, tag: int, expected: int, contract: Contract) -> None:
    found = f"expected tag {expected:02x}, found a question with tag {tag:02x}"
    if kind is FrameKind.QUESTION_PREDICTIVE:
        raise FingerprintError(f"fingerprint: {found}; use the same bundle and variant, or codec compact")
    raise ContractMismatchError(f"contract: {found}; this side has contract {contract}")


def _tokens(shared: Shared) -> TokenBytes:
    if shared.tokens is None:
        raise PayloadError("question: expected a tokenizer (tokens=...), found none")
    return shared.tokens


def _predictor(shared: Shared) -> Predictor:
    if shared.predictor is None:
        raise FingerprintError(
            f"question of codec {Codec.PREDICTIVE.label}: expected the edge model (predictor=...), found "
            "none; ask for codec compact"
        )
    return shared.predictor
