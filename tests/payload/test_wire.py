"""The wire format: everything comes back, and every way to fail has its name."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload import AnchorSet, Base, Codec, Contract, Extras, Shared, decode, encode, peek
from payload.anchors import MAX_CANVAS
from payload.errors import (
    AnchorRangeError,
    BasePayloadError,
    ChecksumError,
    CodecError,
    ContractMismatchError,
    FingerprintError,
    OversizedPayloadError,
    PayloadError,
    PromptRequiredError,
)
from payload.extras import MAX_STEPS
from payload.header import MAX_PAYLOAD_BYTES, seal
from tests.payload.fake_predictor import HashPredictor
from tests.vectors.toy_vocabulary import PIECES, ToyTokens, contract

TOY = contract()
TOKENS = ToyTokens()
BARE = Shared(TOY, tokens=TOKENS)
"""A reader that knows neither prompt nor base."""
LABELS = [codec.label for codec in Codec if not codec.bound]
"""Codecs that need no model; those that do have tests of their own."""


@st.composite
def anchor_sets(draw: st.DrawFn, of: Contract = TOY) -> AnchorSet:
    canvas = draw(st.one_of(st.sampled_from([64, 128, 256, 512]), st.integers(1, 2000)))
    length = draw(st.one_of(st.none(), st.integers(0, min(canvas, 60))))
    end = min(canvas, 60) if length is None else length
    if draw(st.booleans()):
        positions = list(range(end))
    else:
        positions = sorted(draw(st.sets(st.integers(0, end - 1), max_size=40))) if end else []
    ids = draw(st.lists(st.integers(0, of.vocab_size - 1), min_size=len(positions), max_size=len(positions)))
    return AnchorSet(tuple(positions), tuple(ids), canvas, of, length)


@st.composite
def optional_fields(draw: st.DrawFn, anchors: int) -> Extras:
    levels = st.lists(st.integers(0, 3), min_size=anchors, max_size=anchors)
    return Extras(
        prompt=draw(st.one_of(st.none(), st.text(max_size=80))),
        step=draw(st.integers(0, 1000)),
        total_steps=draw(st.sampled_from([0, 64, 128, 512])),
        confidence=tuple(draw(levels)) if draw(st.booleans()) else (),
    )


@given(anchor_sets(), st.sampled_from([*LABELS, "auto"]), st.booleans(), st.data())
@settings(deadline=None, max_examples=60)
def test_everything_comes_back(anchors: AnchorSet, codec: str, primed: bool, draws: st.DataObject) -> None:
    extras = draws.draw(optional_fields(len(anchors)))
    shared = Shared(TOY, [5, 104, 101, 300000, 7] if primed else None, TOKENS)
    data = encode(anchors, shared, codec, extras)
    assert decode(data, shared) == anchors
    header = peek(data)
    assert header.extras == extras
    assert decode(header, shared) == anchors


@given(anchor_sets(contract(151_643)), st.lists(st.integers(0, 151_664), max_size=60))
@settings(deadline=None, max_examples=30)
def test_a_vocabulary_with_statistics_comes_back(anchors: AnchorSet, prompt: list[int]) -> None:
    shared = Shared(anchors.contract, prompt)
    assert decode(encode(anchors, shared), shared) == anchors


@given(anchor_sets(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=30)
def test_a_stream_comes_back(anchors: AnchorSet, luck: random.Random) -> None:
    kept = [luck.random() < 0.5 for _ in anchors.ids]
    some = {p: t for (p, t), keep in zip(anchors.by_position.items(), kept, strict=True) if keep}
    first = AnchorSet.of(some, anchors.canvas, TOY, anchors.length if luck.random() < 0.5 else None)
    alone = Shared(TOY, [84, 104, 101])
    shared = dataclasses.replace(alone, base=Base(encode(first, alone), first))
    data = encode(anchors, shared)
    assert decode(data, shared) == anchors
    with pytest.raises(BasePayloadError):
        decode(data, alone)


def some(count: int = 12, **fields: object) -> AnchorSet:
    luck = random.Random(count)
    positions = sorted(luck.sample(range(40), count))
    ids = tuple(luck.randrange(97, 123) for _ in positions)
    return dataclasses.replace(AnchorSet(tuple(positions), ids, 64, TOY, 50), **fields)  # type: ignore[arg-type]


def test_every_flipped_byte_and_every_truncation_of_100_payloads_is_noticed() -> None:
    for number in range(100):
        prompt = list(range(number)) if number % 3 else None
        codec = LABELS[number % len(LABELS)]
        data = encode(some(1 + number % 30), Shared(TOY, prompt, TOKENS), codec)
        for at in range(len(data)):
            with pytest.raises(PayloadError):
                decode(data[:at], Shared(TOY, prompt or [], TOKENS))
            for flip in (1 << number % 8, 0xFF, 1 + number % 255):
                changed = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
                with pytest.raises(PayloadError):
                    decode(changed, Shared(TOY, prompt or [], TOKENS))


@given(anchor_sets(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=30)
def test_a_portable_payload_is_a_compact_one_for_one_model(anchors: AnchorSet, luck: random.Random) -> None:
    prompt = [luck.randrange(97, 123) for _ in range(luck.randrange(20))]
    shared = Shared(TOY, predictor=HashPredictor(TOY.vocab_size, prompt))
    kept = {p: t for p, t in anchors.by_position.items() if luck.random() < 0.5}
    some = AnchorSet.of(kept, anchors.canvas, TOY, None)
    first = encode(some, shared, Codec.PORTABLE)
    assert decode(first, shared) == some
    assert peek(first).body == peek(encode(some, Shared(TOY, prompt))).body
    adds = dataclasses.replace(shared, base=Base(first, some))
    assert decode(encode(anchors, adds, "portable"), adds) == anchors
    assert peek(encode(anchors, shared, "auto")).codec is not Codec.PORTABLE


@pytest.mark.parametrize("codec", [Codec.COMPACT, Codec.PORTABLE])
def test_every_change_of_a_payload_is_noticed(codec: Codec) -> None:
    shared = Shared(TOY, [1, 2, 3], TOKENS, predictor=HashPredictor(TOY.vocab_size, [1, 2, 3]))
    data = encode(some(), shared, codec, Extras("Why?", step=3, total_steps=8))
    for at in range(len(data)):
        for value in set(range(256)) - {data[at]}:
            with pytest.raises(PayloadError):
                decode(data[:at] + bytes([value]) + data[at + 1 :], shared)
        with pytest.raises(PayloadError):
            decode(data[:at], shared)


def test_a_portable_payload_of_another_model_is_noticed() -> None:
    model = HashPredictor(TOY.vocab_size, [1, 2, 3])
    data = encode(some(), Shared(TOY, predictor=model), Codec.PORTABLE)
    with pytest.raises(ChecksumError):
        decode(data, Shared(TOY, predictor=HashPredictor(TOY.vocab_size, [1, 2])))
    twin, other = (HashPredictor(TOY.vocab_size, [1, 2, 3]) for _ in range(2))
    twin.identity, other.identity = model.identity[:1] + bytes(31), bytes(32)
    for held, error in ((twin, ChecksumError), (other, FingerprintError), (None, FingerprintError)):
        with pytest.raises(error):
            decode(data, Shared(TOY, [1, 2, 3], TOKENS, predictor=held))


def test_another_contract_with_the_same_tag_is_noticed() -> None:
    data = encode(some(), BARE)
    twins = (dataclasses.replace(TOY, vocab_hash=f"{number:064x}") for number in range(5000))
    twin = next(c for c in twins if c.identity[0:2] == TOY.identity[0:2])
    with pytest.raises(ChecksumError):
        decode(data, Shared(twin))


def test_a_carried_prompt_is_put_in_the_template_by_the_reader() -> None:
    """The payload depends on the ids of the templated prompt; it carries the user's text alone."""
    anchors, prompt = some(), "Where is the answer? " * 4
    templated = TOKENS.encode(f"<user>{prompt}<answer>")
    data = encode(anchors, Shared(TOY, templated), extras=Extras(prompt))
    carried = peek(data).extras.prompt
    assert decode(data, Shared(TOY, TOKENS.encode(f"<user>{carried}<answer>"))) == anchors
    with pytest.raises(PromptRequiredError):
        decode(data, BARE)
    with pytest.raises(ChecksumError):
        decode(data, Shared(TOY, TOKENS.encode(str(carried))))


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ContractMismatchError, lambda: encode(some(), Shared(contract(name="b")))),
        (CodecError, lambda: encode(some(), BARE, "zip")),
        (OversizedPayloadError, lambda: decode(bytes(MAX_PAYLOAD_BYTES + 1), BARE)),
        (OversizedPayloadError, lambda: encode(some(), BARE, "auto", Extras("x" * 70_000))),
        (PayloadError, lambda: encode(some(), Shared(TOY), "template-gzip")),
        (AnchorRangeError, lambda: some(ids=(len(PIECES),) * 12)),
        (AnchorRangeError, lambda: some(length=3)),
        (AnchorRangeError, lambda: AnchorSet((1, 1), (0, 0), 4, TOY)),
        (AnchorRangeError, lambda: AnchorSet((), (), MAX_CANVAS + 1, TOY)),
        (AnchorRangeError, lambda: Extras(step=MAX_STEPS + 1)),
        (AnchorRangeError, lambda: Extras(confidence=(0, 4))),
        (AnchorRangeError, lambda: encode(some(), BARE, extras=Extras(confidence=(1,)))),
        (AnchorRangeError, lambda: decode(one_level(), BARE)),
    ],
)
def test_what_cannot_be_is_refused(error: type[PayloadError], make: Callable[[], object]) -> None:
    with pytest.raises(error):
        make()


def one_level() -> bytes:
    """A payload of 12 anchors with one level of confidence, from a writer without a check."""
    body = encode(some(), Shared(TOY))[4:]
    return seal(TOY, Codec.COMPACT, body, Extras(confidence=(1,)).to_bytes())


def test_anchors_by_position() -> None:
    anchors = AnchorSet.of({7: 98, 2: 97}, 64, TOY, 9)
    assert anchors == AnchorSet((2, 7), (97, 98), 64, TOY, 9)
    assert list(anchors.by_position.items()) == [(2, 97), (7, 98)]
    assert AnchorSet.empty(64, TOY) == AnchorSet((), (), 64, TOY)
    assert (len(AnchorSet.empty(64, TOY, 3)), anchors.coverage) == (0, 2 / 9)


def test_a_base_must_be_part_of_what_follows() -> None:
    first, second = some(5), some(12)
    shared = Shared(TOY, tokens=TOKENS, base=Base(encode(first, BARE), first))
    with pytest.raises(AnchorRangeError):
        encode(second, shared)
    grown = dataclasses.replace(first, length=50)
    data = encode(grown, shared)
    other = Base(encode(second, BARE), second)
    with pytest.raises(PayloadError):
        decode(data, Shared(TOY, base=other))
    with pytest.raises(CodecError):
        encode(grown, shared, "template-gzip")
    with pytest.raises(AnchorRangeError):
        encode(dataclasses.replace(grown, length=None), shared)


def test_auto_is_the_smallest() -> None:
    for count in (1, 5, 20):
        shared = Shared(TOY, [1], TOKENS)
        sizes = [len(encode(some(count), shared, each)) for each in LABELS]
        assert len(encode(some(count), shared, "auto")) == min(sizes)


def test_auto_leaves_out_what_is_too_large() -> None:
    shared = Shared(TOY, tokens=TOKENS)
    longest = max(range(len(PIECES)), key=lambda token: len(PIECES[token]))
    anchors = AnchorSet.of(dict.fromkeys(range(20_000), longest), 20_000, TOY, 20_000)
    with pytest.raises(OversizedPayloadError):
        encode(anchors, shared, "template-gzip")
    assert peek(encode(anchors, shared, "auto")).codec is Codec.COMPACT


def test_one_token_costs_few_bytes() -> None:
    assert len(encode(AnchorSet((0,), (97,), 512, TOY, 1), BARE)) <= 7
    assert len(encode(AnchorSet.empty(512, TOY), BARE)) <= 6
