"""Answer frames and refusals: what goes in comes out, and a changed bit shows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from links.frames.kinds import MAX_FRAME_BYTES, MAX_PARTS, FrameKind, peek_frame
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, answer_room, decode_reply, encode_reply
from payload import AnchorSet, Base, PayloadError, Shared, decode, encode
from payload.errors import (
    AnchorRangeError,
    MalformedPayloadError,
    OversizedPayloadError,
)
from payload.header import crc16
from tests.vectors.toy_vocabulary import ToyTokens, contract

TOY = contract()
TOKENS = ToyTokens()
PROMPT = TOKENS.encode("Who is the mayor?")
SHARED = Shared(TOY, PROMPT, TOKENS)
ANCHORS = AnchorSet.of(dict(enumerate(TOKENS.encode("the mayor is Anna"))), 64, TOY)
PAYLOAD = encode(ANCHORS, SHARED)

answers = st.builds(
    AnswerFrame,
    st.integers(0, 65_535),
    st.integers(0, MAX_PARTS - 1),
    st.booleans(),
    st.binary(min_size=3, max_size=60).map(lambda data: b"\x54" + data),
)
refusals = st.one_of(
    st.builds(
        Refusal,
        st.integers(0, 65_535),
        st.sampled_from([code for code in RefusalCode if code is not RefusalCode.OTHER_CONTRACT]),
        st.none() | st.integers(1, 604_800),
    ),
    st.builds(
        Refusal,
        st.integers(0, 65_535),
        st.just(RefusalCode.OTHER_CONTRACT),
        st.none(),
        st.binary(min_size=4, max_size=4).map(bytes.hex),
        st.text("smol2-. ", max_size=32),
    ),
)


def read(data: bytes) -> AnchorSet:
    """The anchors in an answer frame."""
    reply = decode_reply(data)
    assert isinstance(reply, AnswerFrame)
    return decode(reply.payload, SHARED)


@given(answers | refusals)
@settings(deadline=None)
def test_a_reply_comes_back(reply: AnswerFrame | Refusal) -> None:
    data = encode_reply(reply)
    assert decode_reply(data) == reply
    kind = FrameKind.ANSWER if isinstance(reply, AnswerFrame) else FrameKind.REFUSAL
    assert peek_frame(data)[:2] == (kind, reply.id)


@given(answers)
def test_the_room_is_what_a_frame_leaves(answer: AnswerFrame) -> None:
    data = encode_reply(answer)
    assert answer_room(len(data), answer.part) == len(answer.payload)
    assert answer_room(1 << 20) == MAX_FRAME_BYTES - 3


@pytest.mark.parametrize("part", [0, 2, 3, 40])
def test_every_changed_bit_of_an_answer_shows_when_it_is_decoded(part: int) -> None:
    data = encode_reply(AnswerFrame(700, part, False, PAYLOAD))
    assert read(data) == ANCHORS
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PayloadError):
            read(bytes(changed))


def test_a_burst_across_head_and_payload_shows() -> None:
    data = encode_reply(AnswerFrame(700, 0, False, PAYLOAD))
    for burst in range(1, 1 << 16, 7):
        changed = bytearray(data)
        changed[2] ^= burst >> 8
        changed[3] ^= burst & 0xFF
        with pytest.raises(PayloadError):
            read(bytes(changed))


def test_a_chain_of_deltas() -> None:
    first = encode(ANCHORS, SHARED)
    more = AnchorSet.of({**ANCHORS.by_position, 30: 97}, 64, TOY)
    second = encode(more, Shared(TOY, PROMPT, TOKENS, Base(first, ANCHORS)))
    frames = [encode_reply(AnswerFrame(9, n, n == 1, data)) for n, data in enumerate((first, second))]
    base = None
    for frame in frames:
        reply = decode_reply(frame)
        assert isinstance(reply, AnswerFrame)
        found = decode(reply.payload, Shared(TOY, PROMPT, TOKENS, base))
        base = Base(reply.payload, found)
    assert found == more


@given(refusals)
@settings(deadline=None, max_examples=20)
def test_every_changed_bit_of_a_refusal_is_refused(refusal: Refusal) -> None:
    data = encode_reply(refusal)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            other = decode_reply(bytes(changed))
        except PayloadError:
            continue
        # Another kind: an answer, whose check is tested with its payload.
        assert isinstance(other, AnswerFrame)
        with pytest.raises(PayloadError):
            decode(other.payload, SHARED)


def sealed_refusal(flags: int, detail: bytes) -> bytes:
    head = bytes([FrameKind.REFUSAL << 3 | flags, 0, 1])
    return head + crc16(head + detail).to_bytes(2, "big") + detail


def test_what_is_no_reply_is_refused() -> None:
    """Besides the bad frames of the vectors."""
    for broken, error in [
        (b"\x18" + bytes(MAX_FRAME_BYTES), OversizedPayloadError),
        (sealed_refusal(1, b"abcd\n"), AnchorRangeError),
        (sealed_refusal(0, b"\xff\xff\xff\xff\x01"), MalformedPayloadError),
    ]:
        with pytest.raises(error):
            decode_reply(broken)


def test_a_reply_out_of_range_is_not_written() -> None:
    for make in (
        lambda: AnswerFrame(65_536, 0, True, PAYLOAD),
        lambda: AnswerFrame(1, MAX_PARTS, True, PAYLOAD),
        lambda: Refusal(-1, RefusalCode.FAILED),
        lambda: Refusal(1, RefusalCode.FAILED, 0),
        lambda: Refusal(1, RefusalCode.FAILED, identity="00000000"),
        lambda: Refusal(1, RefusalCode.OTHER_CONTRACT),
        lambda: Refusal(1, RefusalCode.OTHER_CONTRACT, identity="00"),
        lambda: Refusal(1, RefusalCode.OTHER_CONTRACT, 5, "00000000"),
        lambda: Refusal(1, RefusalCode.FAILED, bundle="smollm2"),
        lambda: Refusal(1, RefusalCode.OTHER_CONTRACT, None, "00000000", "smol\x1b[2J"),
        lambda: Refusal(1, RefusalCode.OTHER_CONTRACT, None, "00000000", "x" * 33),
    ):
        with pytest.raises(AnchorRangeError):
            make()
    with pytest.raises(OversizedPayloadError):
        encode_reply(AnswerFrame(1, 0, True, PAYLOAD + bytes(MAX_FRAME_BYTES)))


def test_a_refusal_that_reads_like_text_is_one() -> None:
    head = bytes([FrameKind.REFUSAL << 3 | RefusalCode.OTHER_CONTRACT])
    texts = (head + b"%02d" % number + check + b"text" for number in range(100) for check in [b"ab"])
    for data in texts:
        right = data[:3] + crc16(data[:3] + data[5:]).to_bytes(2, "big") + data[5:]
        assert isinstance(decode_reply(right), Refusal)
