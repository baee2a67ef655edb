"""Codec predictive with a model of hashes: exact, robust, and never wrong in silence."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload import AnchorSet, Base, Codec, Contract, Decoding, PayloadError, Shared, decode, encode, peek
from payload.codecs import predictive
from payload.codecs.adaptive_model import AdaptiveModel
from payload.codecs.range_coder import Coder
from payload.codecs.rank_codes import (
    BUCKETS,
    ESCAPE,
    RANK_MOD_64,
    TOP,
    RankCode,
    confidence_bucket,
    rank_codes,
    token_of,
)
from payload.errors import FingerprintError, MalformedPayloadError
from payload.header import seal
from tests.payload.fake_predictor import HashPredictor

WORDS = 40
CONTRACT = Contract(
    WORDS, "0" * 64, {"<|endoftext|>": WORDS, "<|im_start|>": WORDS + 1, "<|im_end|>": WORDS + 2}, "1" * 64
)
PROMPT = [3, 1, 4, 1, 5, 9, 99]


def side(model: HashPredictor | None = None, **more: Any) -> Shared:
    """What a writer or a reader shares, with a model of its own unless one is given."""
    return Shared(CONTRACT, predictor=model or HashPredictor(WORDS, PROMPT), **more)


def own_text(model: HashPredictor, anchors: dict[int, int], length: int) -> list[int]:
    """What forced decoding writes, one position after another: written from the paper, not from the codec."""
    text: list[int] = []
    for position in range(length):
        text.append(anchors.get(position, int(model.row(text)[:WORDS].argmax())))
    return text


@st.composite
def anchor_sets(draw: st.DrawFn) -> AnchorSet:
    """Any anchors, or those of an answer the model half agrees with."""
    canvas = draw(st.sampled_from([1, 30, 64, 70]))
    length = draw(st.none() | st.integers(0, canvas))
    end = canvas if length is None else length
    places = (
        draw(st.dictionaries(st.integers(0, end - 1), st.integers(0, WORDS - 1), max_size=20)) if end else {}
    )
    if draw(st.booleans()):  # the model's own tokens are anchors too
        text = own_text(HashPredictor(WORDS, PROMPT), places, end)
        more = draw(st.sets(st.integers(0, end - 1), max_size=end)) if end else set()
        places |= {p: text[p] for p in more}
    return AnchorSet.of(places, canvas, CONTRACT, length)


@given(anchor_sets(), st.sampled_from([0.0, 0.01, 0.3]), st.booleans())
@settings(deadline=None, max_examples=60)
def test_round_trip_of_any_anchors(anchors: AnchorSet, tolerance: float, drafted: bool) -> None:
    writer, reader = HashPredictor(WORDS, PROMPT), HashPredictor(WORDS, PROMPT)
    draft = list(anchors.ids) if drafted else []
    data = encode(anchors, side(writer), "predictive", tolerance=tolerance, draft=draft)
    decoding = Decoding(data, side(reader))
    steps = list(decoding)
    assert decoding.anchors == anchors
    assert [s.position for s in steps] == list(range(len(steps)))
    held = dict(zip(anchors.positions, anchors.ids, strict=True))
    assert {s.position: s.id for s in steps if s.anchor} == held
    last = max(anchors.positions, default=-1) + 1
    assert len(steps) == (last if anchors.length is None else anchors.length)
    # The tokens between the anchors are those that forced decoding would write there.
    assert [s.id for s in steps] == own_text(HashPredictor(WORDS, PROMPT), held, len(steps))
    assert reader.passes == reader.rows <= len(steps) + 1


@given(anchor_sets())
@settings(deadline=None, max_examples=40)
def test_numbers_that_are_off_by_less_than_the_tolerance_change_nothing(anchors: AnchorSet) -> None:
    data = encode(anchors, side(), "predictive", tolerance=0.3)
    assert decode(data, side(HashPredictor(WORDS, PROMPT, noise=0.145))) == anchors


@given(anchor_sets(), st.sampled_from([0.05, 0.5, 3.0]))
@settings(deadline=None, max_examples=60)
def test_numbers_that_are_off_by_more_are_noticed_or_harmless(anchors: AnchorSet, noise: float) -> None:
    data = encode(anchors, side(), "predictive", tolerance=0.0)
    with contextlib.suppress(FingerprintError):
        assert decode(data, side(HashPredictor(WORDS, PROMPT, noise=noise))) == anchors


def test_another_model_is_never_accepted() -> None:
    """Under 299 other models each is refused, though a check of 16 bits may err once in 65,536."""
    model = HashPredictor(WORDS, PROMPT)
    text = own_text(model, {2: 7, 5: 9, 11: 3}, 20)
    anchors = AnchorSet((2, 5, 11), (7, 9, 3), 64, CONTRACT, 20)
    data = encode(anchors, side(model), "predictive")
    assert [s.id for s in Decoding(data, side(model))] == text
    for seed in range(1, 300):
        with pytest.raises(FingerprintError):
            decode(data, side(HashPredictor(WORDS, PROMPT, seed=seed)))


@given(st.integers(0, 3), st.integers(0, 255))
@settings(deadline=None, max_examples=30)
def test_changed_bytes_and_another_prompt_are_noticed(at: int, change: int) -> None:
    model = HashPredictor(WORDS, PROMPT)
    anchors = AnchorSet((0, 4), (7, 9), 64, CONTRACT, 12)
    data = bytearray(encode(anchors, side(model), "predictive"))
    data[-1 - at] ^= change
    if change:
        with pytest.raises(PayloadError):
            decode(bytes(data), side(model))
    with pytest.raises(PayloadError):
        decode(bytes(data), side(HashPredictor(WORDS, [*PROMPT, 1])))


def test_the_header_names_the_fingerprint_and_the_payload_is_refused_without_it() -> None:
    model, other = HashPredictor(WORDS, PROMPT), HashPredictor(WORDS, PROMPT)
    other.identity = bytes(32)
    anchors = AnchorSet((0,), (7,), 64, CONTRACT, 3)
    data = encode(anchors, side(model), "predictive")
    header = peek(data)
    tag = model.identity.hex()[:2]
    assert (header.codec, header.tag, header.needs_prompt) == (Codec.PREDICTIVE, tag, True)
    for reader, error in (
        (Shared(CONTRACT, prompt_ids=PROMPT), FingerprintError),
        (side(other), FingerprintError),
        (side(model, prompt_ids=[1]), PayloadError),
    ):
        with pytest.raises(error):
            decode(data, reader)
    with pytest.raises(FingerprintError):
        encode(anchors, Shared(CONTRACT, PROMPT), "predictive")
    with pytest.raises(PayloadError):
        encode(anchors, side(model), "predictive", tolerance=float("nan"))


@given(anchor_sets(), st.data())
@settings(deadline=None, max_examples=30)
def test_deltas(anchors: AnchorSet, data: Any) -> None:
    """A payload may add to one of any codec; what the base has costs nothing."""
    kept = data.draw(st.sets(st.sampled_from(anchors.positions))) if anchors.positions else set()
    ids = {p: i for p, i in anchors.by_position.items() if p in kept}
    first = AnchorSet.of(ids, anchors.canvas, CONTRACT, data.draw(st.sampled_from([None, anchors.length])))
    base = Base(encode(first, Shared(CONTRACT, PROMPT)), first)
    delta = encode(anchors, side(base=base), "predictive")
    assert decode(delta, side(base=base)) == anchors
    with pytest.raises(PayloadError):
        decode(delta, side())


def test_what_the_model_says_by_itself_is_almost_free() -> None:
    model = HashPredictor(WORDS, PROMPT)
    text = own_text(model, {}, 64)
    anchors = AnchorSet(tuple(range(64)), tuple(text), 64, CONTRACT, 64)
    free = encode(dataclasses.replace(anchors, positions=(), ids=()), side(model), "predictive")
    whole = encode(anchors, side(model), "predictive")
    assert len(whole) <= len(encode(anchors, Shared(CONTRACT, PROMPT))) / 2
    assert decode(free, side(model)).ids == ()


def test_a_right_draft_is_read_in_one_pass() -> None:
    writer = HashPredictor(WORDS, PROMPT)
    text = own_text(writer, {2: 7}, 30)
    anchors = AnchorSet((2,), (7,), 64, CONTRACT, 30)
    data = encode(anchors, side(writer), "predictive", draft=text)
    assert writer.passes == 1
    wrong = HashPredictor(WORDS, PROMPT)
    draft = [*text[:10], 0, *text[11:]]
    assert encode(anchors, side(wrong), "predictive", draft=draft) == data
    assert wrong.passes == 2


@given(st.integers(0, 5000), st.integers(0, WORDS), st.sampled_from([0.0, 0.02, 0.4]))
@settings(deadline=None, max_examples=100)
def test_every_name_finds_its_token_within_the_tolerance(seed: int, token: int, tolerance: float) -> None:
    row = HashPredictor(WORDS, [seed]).row([])
    seen = set(range(0, WORDS, 3))
    off = row + np.random.default_rng(seed).uniform(-tolerance / 2, tolerance / 2, len(row)) * 0.99
    for code in rank_codes(row, token, seen, tolerance):
        assert token_of(row, code, seen) == token
        assert token_of(off, code, seen) == token
    bucket, stable = confidence_bucket(row, tolerance)
    assert 0 <= bucket < BUCKETS
    assert not stable or tolerance == 0 or confidence_bucket(off)[0] == bucket


def test_equal_predictions_are_distinguished() -> None:
    row = np.full(WORDS + 1, -np.log(WORDS + 1))
    every = range(WORDS + 1)
    assert {token_of(row, rank_codes(row, t, (), 0.0)[0], ()) for t in every} == set(every)
    # 41 numbers: alone in its bin
    assert [code.mode for code in rank_codes(row, 5, (), 0.1)] == [RANK_MOD_64, ESCAPE]
    assert token_of(row, rank_codes(row, 0, (), 0.0)[0], ()) == 0
    assert rank_codes(row, 0, (), 0.0)[0].mode == TOP


def sealed(body: bytes, **more: Any) -> bytes:
    identity = HashPredictor(WORDS).identity
    return seal(CONTRACT, Codec.PREDICTIVE, body, prompt_ids=PROMPT, fingerprint=identity, **more)


@given(st.binary(max_size=40))
@settings(deadline=None, max_examples=150)
def test_any_body(body: bytes) -> None:
    """Sealed by chance with the right check or not: an AnchorSet or a named error, in bounded steps."""
    model = HashPredictor(WORDS, PROMPT)
    body_coder = predictive.PredictiveBody(model, WORDS, None, body)
    try:
        for _ in body_coder.tokens():
            pass
    except PayloadError:
        pass
    else:
        positions, ids, canvas, length = body_coder.shape
        anchors = AnchorSet(positions, ids, canvas, CONTRACT, length)
        assert decode(sealed(body, digest=body_coder.digest), side(model)) == anchors
    assert model.rows <= predictive.PAYLOAD_BOUND.most(len(body)) + 1


def test_few_bytes_cannot_ask_for_many_passes() -> None:
    """Zeros after the end say the likeliest thing for ever: without a bound they would fill any canvas."""

    class Sure(HashPredictor):
        def row(self, before: Any) -> np.ndarray:
            row = np.full(WORDS + 1, -50.0)
            row[7] = -1e-9
            return row

    model = Sure(WORDS, PROMPT)
    anchors = AnchorSet(tuple(range(4000)), (7,) * 4000, 4096, CONTRACT, 4000)
    data = encode(anchors, side(model), "predictive", draft=[7] * 4000)
    assert len(data) >= 4 + predictive.PAYLOAD_BOUND.least(4000)
    start = time.process_time()
    assert decode(data, side(model)) == anchors
    assert time.process_time() - start < 5
    with pytest.raises(FingerprintError):
        decode(sealed(data[4:].rstrip(b"\0")), side(model))


def test_noise_behind_the_header_is_bounded() -> None:
    with pytest.raises(FingerprintError):
        decode(sealed(random.Random(1).randbytes(2000)), side())


def test_a_body_holds_nothing_beside_its_walk() -> None:
    model = HashPredictor(WORDS, PROMPT)
    body = encode(AnchorSet((0, 4), (7, 9), 64, CONTRACT, 12), side(model), "predictive")[4:]
    for longer in (body + b"\0", body + b"\1" * 9):
        with pytest.raises(MalformedPayloadError):
            list(predictive.PredictiveBody(model, WORDS, None, longer).tokens())


def test_counts_are_learned() -> None:
    def size(times: int) -> int:
        model = AdaptiveModel(coder := Coder(None), uncertain=True)
        for _ in range(times):
            model.rank_code([RankCode(ESCAPE, 5, 0)], 2, 1024)
        return len(coder.encoder.finish())

    # 10 bits each are the number's own; what is left is saying so, which the first few times is a surprise.
    assert 10 * size(10) > 1.2 * size(100) > 1.2 * 125
