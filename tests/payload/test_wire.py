"""The wire format: everything comes back, and every way to fail has its name."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload import AnchorSet, Base, Codec, Contract, decode, encode, peek
from payload.anchors import MAX_CANVAS
from payload.errors import (
    AnchorRangeError,
    BasePayloadError,
    ChecksumError,
    CodecError,
    ContractMismatchError,
    MalformedPayloadError,
    OversizedPayloadError,
    PayloadError,
    PromptRequiredError,
    TruncatedPayloadError,
    VersionError,
)
from payload.wire import MAX_PAYLOAD_BYTES
from tests.vectors.toy_vocabulary import PIECES, ToyTokens, contract

TOY = contract()
TOKENS = ToyTokens()
LABELS = [codec.label for codec in Codec if codec is not Codec.PREDICTIVE]
"""Codecs that need no model; the one that does has tests of its own."""


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
    levels = st.lists(st.integers(0, 3), min_size=len(ids), max_size=len(ids))
    return AnchorSet(
        tuple(positions),
        tuple(ids),
        canvas,
        of,
        length,
        step=draw(st.integers(0, 1000)),
        total_steps=draw(st.sampled_from([0, 64, 128, 512])),
        prompt=draw(st.one_of(st.none(), st.text(max_size=80))),
        session=draw(st.one_of(st.none(), st.binary(min_size=1, max_size=32))),
        confidence=tuple(draw(levels)) if draw(st.booleans()) else (),
    )


@given(anchor_sets(), st.sampled_from([*LABELS, "auto"]), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_everything_comes_back(anchors: AnchorSet, codec: str, primed: bool, embed: bool) -> None:
    embed = embed and anchors.prompt is not None
    prompt = [5, 104, 101, 300000, 7] if primed else None
    data = encode(anchors, codec, prompt_ids=prompt, tokens=TOKENS, embed_prompt=embed)
    expected = anchors if embed else dataclasses.replace(anchors, prompt=None)
    assert decode(data, TOY, prompt_ids=prompt, tokens=TOKENS) == expected
    header = peek(data, TOY, prompt_ids=prompt)
    assert header.verified
    assert (header.prompt, header.session, header.step) == (expected.prompt, anchors.session, anchors.step)


@given(anchor_sets(contract(151_643)), st.lists(st.integers(0, 151_664), max_size=60))
@settings(deadline=None, max_examples=30)
def test_a_vocabulary_with_statistics_comes_back(anchors: AnchorSet, prompt: list[int]) -> None:
    data = encode(anchors, prompt_ids=prompt)
    assert decode(data, anchors.contract, prompt_ids=prompt) == dataclasses.replace(anchors, prompt=None)


@given(anchor_sets(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=30)
def test_a_stream_comes_back(anchors: AnchorSet, luck: random.Random) -> None:
    kept = [luck.random() < 0.5 for _ in anchors.ids]
    first = AnchorSet(
        tuple(p for p, keep in zip(anchors.positions, kept, strict=True) if keep),
        tuple(t for t, keep in zip(anchors.ids, kept, strict=True) if keep),
        anchors.canvas,
        TOY,
        anchors.length if luck.random() < 0.5 else None,
    )
    prompt = [84, 104, 101]
    base = Base(encode(first, prompt_ids=prompt), first)
    data = encode(anchors, prompt_ids=prompt, base=base)
    assert decode(data, TOY, prompt_ids=prompt, base=base) == dataclasses.replace(anchors, prompt=None)
    with pytest.raises(BasePayloadError, match="found none"):
        decode(data, TOY, prompt_ids=prompt)


def some(count: int = 12, **fields: object) -> AnchorSet:
    luck = random.Random(count)
    positions = sorted(luck.sample(range(40), count))
    ids = tuple(luck.randrange(97, 123) for _ in positions)
    return dataclasses.replace(AnchorSet(tuple(positions), ids, 64, TOY, 50), **fields)  # type: ignore[arg-type]


def test_every_flipped_byte_of_100_payloads_is_noticed() -> None:
    for number in range(100):
        prompt = list(range(number)) if number % 3 else None
        codec = LABELS[number % len(LABELS)]
        data = encode(some(1 + number % 30), codec, prompt_ids=prompt, tokens=TOKENS)
        for at in range(len(data)):
            for flip in (1 << number % 8, 0xFF, 1 + number % 255):
                changed = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
                with pytest.raises(PayloadError):
                    decode(changed, TOY, prompt_ids=prompt or [], tokens=TOKENS)


def test_every_value_of_every_byte_of_one_payload_is_noticed() -> None:
    data = encode(some(session=b"s", step=3, total_steps=8), prompt_ids=[1, 2, 3])
    for at in range(len(data)):
        for value in set(range(256)) - {data[at]}:
            with pytest.raises(PayloadError):
                decode(data[:at] + bytes([value]) + data[at + 1 :], TOY, prompt_ids=[1, 2, 3], tokens=TOKENS)


@pytest.mark.parametrize("codec", LABELS)
def test_every_truncation_is_refused(codec: str) -> None:
    data = encode(some(prompt="Why?"), codec, tokens=TOKENS, embed_prompt=True)
    for size in range(len(data)):
        with pytest.raises(PayloadError):
            decode(data[:size], TOY, tokens=TOKENS)
    with pytest.raises(TruncatedPayloadError, match="header: expected 4 bytes at byte 0, found 0"):
        decode(b"", TOY)


def test_another_contract_is_refused_by_name() -> None:
    data = encode(some())
    other = contract(name="b")
    with pytest.raises(ContractMismatchError, match=f"expected tag {other.identity[:2]}.*{TOY.identity[:2]}"):
        decode(data, other)
    assert peek(data).tag == TOY.identity[:2]
    assert not peek(data, other).verified


def test_another_contract_with_the_same_tag_is_noticed() -> None:
    data = encode(some())
    twins = (dataclasses.replace(TOY, vocab_hash=f"{number:064x}") for number in range(5000))
    twin = next(c for c in twins if c.identity[0:2] == TOY.identity[0:2])
    with pytest.raises(ChecksumError, match="another contract"):
        decode(data, twin)


def test_another_prompt_is_noticed() -> None:
    data = encode(some(), prompt_ids=[1, 2, 3])
    assert peek(data).needs_prompt
    with pytest.raises(PromptRequiredError, match="found none"):
        decode(data, TOY)
    for other in ([], [1, 2], [1, 2, 4], [1, 2, 3, 0]):
        with pytest.raises(ChecksumError, match="another prompt"):
            decode(data, TOY, prompt_ids=other)


def test_a_carried_prompt_is_enough() -> None:
    anchors = some(prompt="Where is the answer? " * 4)
    data = encode(anchors, prompt_ids=TOKENS.encode(str(anchors.prompt)), embed_prompt=True)
    assert peek(data).prompt == anchors.prompt
    assert decode(data, TOY, tokens=TOKENS) == anchors
    with pytest.raises(PromptRequiredError, match="found neither"):
        decode(data, TOY)
    with pytest.raises(PromptRequiredError, match=r"anchors\.prompt"):
        encode(some(), embed_prompt=True)


def test_a_higher_version_and_an_unknown_codec_are_named() -> None:
    data = encode(some())
    with pytest.raises(VersionError, match=r"expected 1, found 2 .*update"):
        decode(bytes([0x80 | data[0] & 0x3F]) + data[1:], TOY)
    with pytest.raises(VersionError, match=r"expected 1, found 0 .*not a payload"):
        peek(b"\0" * 20)
    with pytest.raises(CodecError, match=r"3 \(predictive\), found 5"):
        decode(bytes([data[0] & 0xC7 | 5 << 3]) + data[1:], TOY)
    with pytest.raises(CodecError, match="found 'zip'"):
        encode(some(), "zip")
    with pytest.raises(MalformedPayloadError, match="neither prompt nor base"):
        peek(bytes([1 << 6 | 4]) + data[1:])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OversizedPayloadError, match="not a payload"):
        decode(bytes(MAX_PAYLOAD_BYTES + 1), TOY)
    with pytest.raises(AnchorRangeError, match="outside the vocabulary"):
        some(ids=(len(PIECES),) * 12)
    with pytest.raises(AnchorRangeError, match="outside the response"):
        some(length=3)
    with pytest.raises(AnchorRangeError, match="ascend"):
        AnchorSet((1, 1), (0, 0), 4, TOY)
    with pytest.raises(AnchorRangeError, match="canvas"):
        AnchorSet((), (), MAX_CANVAS + 1, TOY)
    with pytest.raises(AnchorRangeError, match="one confidence"):
        some(confidence=(1,))
    with pytest.raises(AnchorRangeError, match="session"):
        some(session=b"")
    with pytest.raises(OversizedPayloadError, match="beside the payload"):
        encode(some(prompt="x" * 70_000), embed_prompt=True)
    with pytest.raises(PayloadError, match="expected a tokenizer"):
        encode(some(), "template-gzip")


def test_a_base_must_be_part_of_what_follows() -> None:
    first, second = some(5), some(12)
    with pytest.raises(AnchorRangeError, match="committed tokens stay"):
        encode(second, base=Base(encode(first), first))
    grown = dataclasses.replace(first, length=50)
    data = encode(grown, base=Base(encode(first), first))
    other = Base(encode(second), second)
    with pytest.raises(PayloadError):
        decode(data, TOY, base=other)
    with pytest.raises(CodecError, match="adds to another"):
        encode(grown, "template-gzip", tokens=TOKENS, base=Base(encode(first), first))
    with pytest.raises(AnchorRangeError, match="known length stays"):
        encode(dataclasses.replace(grown, length=None), base=Base(encode(first), first))


def test_auto_is_the_smallest() -> None:
    for count in (1, 5, 20):
        sizes = [len(encode(some(count), each, prompt_ids=[1], tokens=TOKENS)) for each in LABELS]
        assert len(encode(some(count), "auto", prompt_ids=[1], tokens=TOKENS)) == min(sizes)


def test_one_token_costs_few_bytes() -> None:
    assert len(encode(AnchorSet((0,), (97,), 512, TOY, 1))) <= 7
    assert len(encode(AnchorSet((), (), 512, TOY))) <= 6
