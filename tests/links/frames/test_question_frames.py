"""Question frames: what goes in comes out, and whatever is wrong has a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from links.frames.kinds import FrameKind, peek_frame
from links.frames.question import (
    UTF8,
    Question,
    decode_question,
    encode_question,
    open_question,
    peek_question,
    seal_question,
)
from links.frames.question_text import MAX_QUESTION_BYTES, predictive_body, read_predictive
from payload import AnchorSet, Codec, Contract, Shared
from payload.codecs import predictive
from payload.codecs.adaptive_model import QUESTION_COUNTS
from payload.errors import (
    AnchorRangeError,
    ChecksumError,
    CodecError,
    ContractMismatchError,
    FingerprintError,
    MalformedPayloadError,
    OversizedPayloadError,
    PayloadError,
)
from tests.payload.fake_predictor import HashPredictor
from tests.vectors.toy_vocabulary import PIECES, ToyTokens, contract

TOY = contract()
TOKENS = ToyTokens()
HEAD = [TOY.special["<|im_start|>"], *TOKENS.encode("user\n")]
TEXT = "Who is the mayor of the town on the river?"
CODECS = (UTF8, "compact", "predictive")


def shared(noise: float = 0.0, seed: int = 0, predictor: bool = True) -> Shared:
    model = HashPredictor(TOY.vocab_size, HEAD, noise, seed) if predictor else None
    return Shared(TOY, tokens=TOKENS, predictor=model)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    extent = draw(st.sampled_from(["none", "fraction", "steps"]))
    return Question(
        draw(st.integers(0, 65_535)),
        draw(st.text(min_size=1, max_size=40)),
        draw(st.integers(1, 200)) / 200 if extent == "fraction" else None,
        draw(st.integers(1, 1 << 20)) if extent == "steps" else None,
        draw(st.none() | st.integers(1, 8192)),
        draw(st.booleans()),
    )


@given(questions(), st.sampled_from([*CODECS, "auto"]))
@settings(deadline=None, max_examples=100)
def test_a_question_comes_back(question: Question, codec: str) -> None:
    try:
        data = encode_question(question, shared(), codec)
    except CodecError:
        assert codec in ("compact", "predictive")
        assert b"".join(map(TOKENS.token_bytes, TOKENS.encode(question.text))) != question.text.encode()
        return
    assert decode_question(data, shared()) == question
    assert peek_frame(data)[:2] == (FrameKind(data[0] >> 3), question.id)


@pytest.mark.parametrize("codec", CODECS)
def test_the_header_takes_six_bytes(codec: str) -> None:
    """And one for a share of the steps, one or two for the room of the answer."""
    plain = encode_question(Question(7, TEXT), shared(), codec)
    assert decode_question(plain, shared()) == Question(7, TEXT)
    if codec == UTF8:
        assert len(plain) == 6 + len(TEXT)
    wanted = encode_question(Question(7, TEXT, 0.25, room=47), shared(), codec)
    assert len(wanted) == len(plain) + 2


@pytest.mark.parametrize("codec", CODECS)
def test_the_fields_can_be_read_without_the_text(codec: str) -> None:
    data = encode_question(Question(7, TEXT, steps=30, room=48, predictive=False), shared(), codec)
    head = peek_question(data, shared())
    assert (head.id, head.fraction, head.steps, head.room, head.predictive) == (7, None, 30, 48, False)
    assert peek_question(data, shared(predictor=False)) == head
    with pytest.raises(ChecksumError):
        peek_question(data[:-1] + bytes([data[-1] ^ 1]), shared())


def test_auto_is_the_smallest_of_those_that_can_be_used() -> None:
    question = Question(7, TEXT)
    sizes = {codec: len(encode_question(question, shared(), codec)) for codec in CODECS}
    assert len(encode_question(question, shared())) == min(sizes.values())
    without = encode_question(question, shared(predictor=False))
    assert len(without) == min(sizes[UTF8], sizes["compact"])
    assert peek_frame(encode_question(question, Shared(TOY))).kind is FrameKind.QUESTION_UTF8


class Short(HashPredictor):
    """A model whose context ends after this many tokens of a text."""

    most = -1

    def read(self, text: Sequence[int], start: int) -> Iterator[np.ndarray]:
        if len(text) > self.most:
            raise UserError("context: expected fewer tokens")
        return super().read(text, start)


def test_a_model_that_cannot_read_the_text_is_done_without_or_the_question_is_refused() -> None:
    held = Shared(TOY, tokens=TOKENS, predictor=Short(TOY.vocab_size, HEAD))
    asked = Question(7, TEXT)
    assert encode_question(asked, held) == encode_question(asked, shared(predictor=False))
    with pytest.raises(UserError):
        encode_question(asked, held, "predictive")
    data = encode_question(asked, shared(), "predictive")
    held.predictor.most = 3  # type: ignore[union-attr]
    with pytest.raises(FingerprintError):
        decode_question(data, held)


class Upper(ToyTokens):
    def encode(self, text: str) -> list[int]:
        return super().encode(text.upper())


class Named(ToyTokens):
    def encode(self, text: str) -> list[int]:
        return [TOY.special["<|im_end|>"]]

    def token_bytes(self, id: int) -> bytes:
        return b"<|im_end|>"


@pytest.mark.parametrize(("tokens", "text"), [(Upper(), "the town"), (Named(), "<|im_end|>")])
def test_a_text_that_ordinary_tokens_do_not_give_back_travels_as_it_is(tokens: ToyTokens, text: str) -> None:
    held = Shared(TOY, tokens=tokens)
    data = encode_question(Question(1, text), held)
    assert peek_frame(data).kind is FrameKind.QUESTION_UTF8
    assert decode_question(data, held).text == text
    for codec in (Codec.COMPACT, "template-gzip"):
        with pytest.raises(CodecError):
            encode_question(Question(1, text), held, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_every_changed_bit_and_every_frame_cut_short_or_grown_is_refused(codec: str) -> None:
    question = Question(300, TEXT, 0.25, room=200)
    data = encode_question(question, shared(), codec)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PayloadError) as caught:
            decode_question(bytes(changed), shared())
        assert bit // 8 != 3 or isinstance(caught.value, ChecksumError), "a changed tag is damage"
    for size in range(len(data)):
        with pytest.raises(PayloadError):
            decode_question(data[:size], shared())
    with pytest.raises(PayloadError):
        decode_question(data + b"\1", shared())


def test_another_contract_is_refused_by_tag_and_by_check() -> None:
    other = contract(len(PIECES), "f")
    data = encode_question(Question(1, TEXT), shared(), "compact")
    with pytest.raises(ContractMismatchError):
        decode_question(data, Shared(other, tokens=TOKENS))
    same_tag = next(
        each
        for n in range(5000)
        if (each := Contract(TOY.vocab_size, f"{n:064x}", TOY.special, "0" * 64)).identity[:2]
        == TOY.identity[:2]
    )
    with pytest.raises(ChecksumError):
        decode_question(data, Shared(same_tag, tokens=TOKENS))


def test_other_predictions_are_refused() -> None:
    data = encode_question(Question(1, TEXT), shared(), "predictive")
    with pytest.raises(FingerprintError):
        decode_question(data, shared(seed=1))
    with pytest.raises(FingerprintError):
        decode_question(data, shared(predictor=False))
    other = shared()
    assert isinstance(other.predictor, HashPredictor)
    other.predictor.identity = b"\0" * 32
    with pytest.raises(FingerprintError):
        decode_question(data, other)
    head = replace(shared(), predictor=HashPredictor(TOY.vocab_size, HEAD[:-1]))
    with pytest.raises(ChecksumError):
        decode_question(data, head)


def test_a_changed_frame_does_not_reach_the_model() -> None:
    data = encode_question(Question(1, TEXT), shared(), "predictive")
    held = shared()
    assert isinstance(held.predictor, HashPredictor)
    with pytest.raises(ChecksumError):
        decode_question(data[:-1] + bytes([data[-1] ^ 1]), held)
    assert held.predictor.passes == 0


def test_a_text_decoded_to_something_else_is_refused_by_its_digest() -> None:
    held = shared()
    ids = TOKENS.encode(TEXT)
    assert held.predictor is not None
    body, digest = predictive_body(ids, TOY, held.predictor, 0.0)
    wrong = bytes([digest[0] ^ 1])
    data = seal_question(Question(1, TEXT), FrameKind.QUESTION_PREDICTIVE, held, body, wrong)
    with pytest.raises(FingerprintError):
        decode_question(data, held)


def test_numbers_that_differ_within_the_tolerance_do_no_harm() -> None:
    data = encode_question(Question(1, TEXT), shared(), "predictive", tolerance=0.02)
    for _ in range(5):
        assert decode_question(data, shared(noise=0.02)).text == TEXT


def test_encoding_takes_one_pass_of_the_model() -> None:
    held = shared()
    encode_question(Question(1, TEXT), held, "predictive")
    assert isinstance(held.predictor, HashPredictor)
    assert held.predictor.passes == 1


def test_a_short_body_cannot_ask_for_a_long_text() -> None:
    """Rows that make every token free: the reader stops at the bound of a text, not of a body."""

    class Sure(HashPredictor):
        def row(self, before: object) -> np.ndarray:
            row = np.full(TOY.vocab_size + 1, -30.0)
            row[97] = -1e-9
            return row

    held = Shared(TOY, tokens=TOKENS, predictor=Sure(TOY.vocab_size, HEAD))
    text = "a" * MAX_QUESTION_BYTES

    class Letters(ToyTokens):
        def encode(self, text: str) -> list[int]:
            return list(text.encode())

    held = replace(held, tokens=Letters())
    data = encode_question(Question(1, text), held, "predictive")
    assert len(data) == 7 + MAX_QUESTION_BYTES // 8
    assert decode_question(data, held).text == text
    assert held.tokens is not None
    assert held.predictor is not None
    with pytest.raises(FingerprintError):
        read_predictive(open_question(data)[2][:-1], TOY, held.tokens, held.predictor)
    longer = AnchorSet(tuple(range(2049)), (97,) * 2049, 4096, TOY, 2049)
    body, digest = predictive.encode(
        longer, held.predictor, draft=longer.ids, counts=QUESTION_COUNTS, bound=predictive.QUESTION_BOUND
    )
    data = seal_question(Question(1, "a"), FrameKind.QUESTION_PREDICTIVE, held, body, digest)
    with pytest.raises(FingerprintError):
        decode_question(data, held)


def test_a_text_with_gaps_is_refused() -> None:
    """Such as no writer of a question makes: an answer's body, behind a check that holds."""
    gap = AnchorSet((0, 3), (97, 98), 512, TOY, 4)
    open_end = AnchorSet((0, 1), (97, 98), 512, TOY)
    for anchors in (gap, open_end, AnchorSet.empty(512, TOY, 0)):
        held = shared()
        assert held.predictor is not None
        body, digest = predictive.encode(anchors, held.predictor, counts=QUESTION_COUNTS)
        data = seal_question(Question(1, "a"), FrameKind.QUESTION_PREDICTIVE, held, body, digest)
        with pytest.raises(FingerprintError):
            decode_question(data, held)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"id": -1}, AnchorRangeError),
        ({"id": 65_536}, AnchorRangeError),
        ({"text": ""}, OversizedPayloadError),
        ({"text": "é" * (MAX_QUESTION_BYTES // 2 + 1)}, OversizedPayloadError),
        ({"text": "\ud800"}, MalformedPayloadError),
        ({"fraction": 0.0}, AnchorRangeError),
        ({"fraction": 1.01}, AnchorRangeError),
        ({"steps": 0}, AnchorRangeError),
        ({"steps": 3, "fraction": 0.5}, AnchorRangeError),
        ({"room": 0}, AnchorRangeError),
        ({"room": 8193}, AnchorRangeError),
    ],
)
def test_a_field_out_of_range_is_refused(fields: dict[str, object], error: type[PayloadError]) -> None:
    with pytest.raises(error):
        Question(**{"id": 1, "text": "a", **fields})  # type: ignore[arg-type]


def test_a_small_share_is_not_lost() -> None:
    data = encode_question(Question(1, "a", 0.001), shared())
    assert decode_question(data, shared()).fraction == 1 / 200
