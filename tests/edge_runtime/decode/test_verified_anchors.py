"""Anchors as a draft: with tolerance 0 the device's own text, whatever was sent, in no more passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.endings import Stop
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.decode.speculate import Speculator
from edge_runtime.engine.base import BaseEngine, Logits
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet

MakeEngine = Callable[..., Any]
MakeAnchors = Callable[..., AnchorSet]
LogitsAfter = Callable[..., np.ndarray]

FREE = {1: 1.0, 9: 1.0}
LIMIT = 40
VOCAB = 12
"""Ids that an anchor may have; the engine's others are special."""

PAYLOADS: dict[str, Any] = {
    "prompt": st.lists(st.integers(0, 14), min_size=1, max_size=12),
    "places": st.dictionaries(st.integers(0, 45), st.integers(0, 11), max_size=46),
    "length": st.none() | st.integers(0, 60),
    "canvas": st.integers(60, 70),
    "seed": st.integers(0, 1000),
}
"""A prompt, any anchors, and any length: within it and behind the device's own end."""


def alone(
    engine: Any, prompt: list[int], nothing: AnchorSet, options: FillOptions, stats: FillStats
) -> list[int]:
    """What the device writes without a payload."""
    return [t.id for t in fill(engine, prompt, nothing, replace(options, tolerance=None), stats)]


@given(scored=st.booleans(), max_chunk=st.integers(1, 9), max_rows=st.integers(1, 5), **PAYLOADS)
def test_with_tolerance_0_no_anchor_changes_the_text_or_adds_a_pass(
    make_engine: MakeEngine,
    make_anchors: MakeAnchors,
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    canvas: int,
    seed: int,
    scored: bool,
    max_chunk: int,
    max_rows: int,
) -> None:
    sent = {p: i for p, i in places.items() if length is None or p < length}
    anchors = make_anchors(sent, canvas=canvas, length=length)
    options = FillOptions(LIMIT, scored, max_chunk=max_chunk, max_rows=max_rows, tolerance=0)
    plain, stats = FillStats(), FillStats()
    own = alone(make_engine(seed=seed), prompt, make_anchors({}), options, plain)
    engine = make_engine(seed=seed)
    tokens = list(fill(engine, prompt, anchors, options, stats))
    assert [t.id for t in tokens] == own
    assert [t.position for t in tokens] == list(range(len(own)))
    assert stats.passes == len(engine.passes) <= plain.passes
    assert stats.stop is plain.stop
    reached = {p: i for p, i in sent.items() if p < len(own)}
    agreed = {p for p, i in reached.items() if own[p] == i}
    assert {t.position for t in tokens if t.source is Source.ANCHOR} == agreed
    # An anchor where the answer ends is neither: there is no token in its place.
    assert stats.refused == len(reached) - len(agreed)
    # Wrong anchors cost little: a draft is at most twice as long as what the one before it was right about.
    first = len(prompt) + max(max_rows, 1)
    assert stats.computed <= first + 3 * (len(own) + 1)


@given(drafted=st.booleans(), **PAYLOADS)
def test_the_devices_own_tokens_as_anchors_take_one_pass(
    make_engine: MakeEngine,
    make_anchors: MakeAnchors,
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    canvas: int,
    seed: int,
    drafted: bool,
) -> None:
    options = FillOptions(LIMIT, tolerance=0, drafter=Speculator(FREE) if drafted else None)
    own = alone(make_engine(seed=seed), prompt, make_anchors({}), options, FillStats())
    own = own[: next((at for at, id_ in enumerate(own) if id_ >= VOCAB), LIMIT)]
    if not own:
        return
    options = replace(options, max_tokens=len(own))
    anchors = make_anchors(
        dict(enumerate(own)), canvas=canvas, length=length if length and length > LIMIT else None
    )
    stats = FillStats()
    tokens = list(fill(make_engine(seed=seed), prompt, anchors, options, stats))
    assert [(t.id, t.source) for t in tokens] == [(id_, Source.ANCHOR) for id_ in own]
    assert stats.passes == 1
    assert stats.refused == 0


@given(shift=st.integers(1, 5), **PAYLOADS)
def test_shifted_anchors_are_refused_where_they_are_wrong(
    make_engine: MakeEngine,
    make_anchors: MakeAnchors,
    shift: int,
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    canvas: int,
    seed: int,
) -> None:
    options, stats = FillOptions(LIMIT, tolerance=0), FillStats()
    own = alone(make_engine(seed=seed), prompt, make_anchors({}), options, FillStats())
    shifted = {at + shift: id_ for at, id_ in enumerate(own) if id_ < VOCAB}
    tokens = list(fill(make_engine(seed=seed), prompt, make_anchors(shifted, canvas=canvas), options, stats))
    assert [t.id for t in tokens] == own
    assert stats.refused == sum(own[p] != i for p, i in shifted.items() if p < len(own))


class Counting(BaseEngine):
    """Each token is followed by the next number, 0 to 11 in a circle: an answer without an end."""

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        logits = np.zeros((len(rows), 15), np.float32)
        logits[range(len(rows)), [(ids[row] + 1) % 12 for row in rows]] = 9
        return logits


def test_wrong_anchors_cost_one_long_pass(make_anchors: MakeAnchors) -> None:
    own = [(3 + at) % 12 for at in range(200)]
    wrong = make_anchors({at: (id_ + 5) % 12 for at, id_ in enumerate(own)}, canvas=200)
    stats = FillStats()
    options = FillOptions(200, tolerance=0, max_rows=16)
    tokens = list(fill(Counting(context=999, vocab=15), [1, 2], wrong, options, stats))
    assert [t.id for t in tokens] == own
    assert stats.refused == stats.passes == 200
    assert stats.computed == 2 + 15 + 199  # after the first pass a wrong anchor is not even run


def test_after_a_wrong_anchor_the_right_ones_take_few_passes(make_anchors: MakeAnchors) -> None:
    sent = {at: (3 + at) % 12 for at in range(200)} | {100: 11}
    stats = FillStats()
    options = FillOptions(200, tolerance=0, max_rows=500)
    tokens = list(
        fill(Counting(context=999, vocab=15), [1, 2], make_anchors(sent, canvas=200), options, stats)
    )
    assert [t.source for t in tokens].count(Source.ANCHOR) == 199
    assert (stats.refused, stats.passes) == (1, 2)


def judged_one_at_a_time(
    logits_after: LogitsAfter, prompt: Sequence[int], anchors: AnchorSet, tolerance: float, seed: int
) -> list[tuple[int, bool]]:
    """(id, taken from the cloud) of each token, one prediction per position; shares nothing with `fill`."""
    ends = sorted(anchors.contract.eos_ids)
    answer: list[tuple[int, bool]] = []
    while len(answer) < LIMIT:
        logits = logits_after([*prompt, *(id_ for id_, _ in answer)], seed)
        log_p = logits - np.log(np.exp(logits).sum())
        near = [i for i, p in enumerate(log_p) if p >= log_p.max() - tolerance]
        if len(answer) == anchors.length and set(ends) & set(near):
            break
        sent = anchors.by_position.get(len(answer))
        choice = sent if sent in near else int(log_p.argmax())
        if choice in ends:
            break
        answer.append((choice, choice == sent))
    return answer


@given(tolerance=st.floats(0.01, 6), drafted=st.booleans(), **PAYLOADS)
def test_within_the_tolerance_an_anchor_is_taken(
    make_engine: MakeEngine,
    make_anchors: MakeAnchors,
    logits_after: LogitsAfter,
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    canvas: int,
    seed: int,
    tolerance: float,
    drafted: bool,
) -> None:
    sent = {p: i for p, i in places.items() if length is None or p < length}
    anchors = make_anchors(sent, canvas=canvas, length=length)
    options = FillOptions(LIMIT, tolerance=tolerance, drafter=Speculator(FREE) if drafted else None)
    stats = FillStats()
    tokens = list(fill(make_engine(seed=seed), prompt, anchors, options, stats))
    expected = judged_one_at_a_time(logits_after, prompt, anchors, tolerance, seed)
    assert [(t.id, t.source is Source.ANCHOR) for t in tokens] == expected
    reached = sum(p < len(expected) for p in sent)
    assert stats.refused == reached - sum(taken for _, taken in expected)


def test_a_tie_is_not_the_devices_own_token(make_anchors: MakeAnchors) -> None:
    class Undecided(BaseEngine):
        def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
            return np.zeros((len(rows), 15), np.float32)

    engine = Undecided(context=100, vocab=15)
    for tolerance, expected in ((0.0, [0, 0, 0]), (1e-6, [7, 0, 0])):
        found = fill(engine, [1], make_anchors({0: 7}), FillOptions(3, tolerance=tolerance))
        assert [t.id for t in found] == expected


def test_with_no_bound_every_anchor_is_taken(make_engine: MakeEngine, make_anchors: MakeAnchors) -> None:
    anchors = make_anchors(dict(enumerate([3, 1, 4, 1, 5])), length=5)
    trusting = [t.id for t in fill(make_engine(), [2], anchors)]
    stats = FillStats()
    options = FillOptions(tolerance=math.inf)
    assert [t.id for t in fill(make_engine(), [2], anchors, options, stats)] == trusting
    assert (stats.passes, stats.refused, stats.stop) == (1, 0, Stop.EOS)


def test_options_that_exclude_one_another_are_refused(
    make_engine: MakeEngine, make_anchors: MakeAnchors, tiny_bundle: Path
) -> None:
    for options, reason in (
        (FillOptions(tolerance=-1.0), "0 nats or more, found -1.0"),
        (FillOptions(tolerance=math.nan), "0 nats or more, found nan"),
    ):
        with pytest.raises(UsageError, match=reason):
            fill(make_engine(), [1], make_anchors({}), options)
    edge = EdgeRuntime.open(tiny_bundle, threads=1)
    with pytest.raises(UsageError, match="tolerance: expected verify 'greedy'"):
        edge.options(tolerance=1.0)
    with pytest.raises(UsageError, match="verify: expected one of off, greedy, found 'exact'"):
        edge.options(verify="exact")
    assert edge.options().tolerance is None
    assert edge.options(verify="greedy").tolerance == 0


@given(
    sets=st.lists(
        st.dictionaries(st.integers(0, 20), st.integers(0, 11), max_size=20), min_size=1, max_size=4
    ),
    lengths=st.lists(st.none() | st.integers(0, 9), min_size=4, max_size=4),
    pauses=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    tolerance=st.just(0.0) | st.floats(0.01, 4),
    seed=st.integers(0, 300),
)
def test_a_refined_answer_is_that_of_the_last_payload(
    make_engine: MakeEngine,
    make_anchors: MakeAnchors,
    sets: list[dict[int, int]],
    lengths: list[int | None],
    pauses: list[int],
    tolerance: float,
    seed: int,
) -> None:
    sent = [
        make_anchors(
            {p: i for p, i in places.items() if length is None or p < length}, canvas=40, length=length
        )
        for places, length in zip(sets, lengths, strict=False)
    ]
    options = FillOptions(30, tolerance=tolerance)
    expected = FillStats()
    want = [t.id for t in fill(make_engine(seed=seed), [1, 2], sent[-1], options, expected)]
    feed, stats = AnchorFeed(), FillStats()
    waiting = list(zip(pauses, sent, strict=False))
    stream = fill_refined(make_engine(seed=seed), [1, 2], feed, sent[0].contract, options, stats, timeout=0)
    answer: list[Token] = []
    retracted = 0
    count = 0
    while True:
        while waiting and count >= waiting[0][0]:
            feed.put(waiting.pop(0)[1])
            count = 0
            if not waiting:
                feed.close()
        try:
            item = next(stream)
        except StopIteration:
            break
        count += 1
        if isinstance(item, Retract):
            retracted += 1
            del answer[item.position :]
        else:
            answer.append(item)
    if waiting:  # the answer was over before the last payload came
        return
    assert [t.id for t in answer] == want
    assert stats.refused == expected.refused
    assert not retracted or tolerance


def test_a_later_length_takes_back_what_is_behind_it(make_anchors: MakeAnchors) -> None:
    feed, stats = AnchorFeed(), FillStats()
    engine = Counting(context=99, vocab=15)
    options = FillOptions(20, tolerance=9)
    stream = fill_refined(engine, [1], feed, make_anchors({}).contract, options, stats, timeout=0)
    assert [item.position for item in (next(stream), next(stream), next(stream))] == [0, 1, 2]
    feed.put(make_anchors({}, length=2))
    feed.close()
    assert list(stream) == [Retract(2)]
    assert stats.stop is Stop.EOS


@pytest.mark.parametrize("variant", ["fp32", "int8", "int4"])
def test_a_real_model_keeps_its_own_text(tiny_bundle: Path, variant: str) -> None:
    bundle = Bundle.open(tiny_bundle, variant)
    engine = OrtEngine.open(bundle, threads=1)
    vocab = bundle.contract.vocab_size
    for seed in range(3):
        random = np.random.default_rng(seed)
        prompt = [int(i) for i in random.integers(0, 300, 20)]
        options = FillOptions(60, tolerance=0)
        plain = FillStats()
        nothing = AnchorSet.empty(512, bundle.contract)
        own = [t.id for t in fill(engine, prompt, nothing, replace(options, tolerance=None), plain)]
        noise = {int(p): int(random.integers(vocab)) for p in random.choice(100, 50, replace=False)}
        shifted = {at + 1: id_ for at, id_ in enumerate(own) if id_ < vocab}
        wrong_in_the_middle = {at: id_ for at, id_ in enumerate(own) if id_ < vocab}
        wrong_in_the_middle[10] = (own[10] + 1) % vocab
        for places, length in ((noise, 100), (shifted, None), (wrong_in_the_middle, 20 + len(own)), ({}, 3)):
            anchors = AnchorSet.of(places, 120, bundle.contract, length)
            stats = FillStats()
            assert [t.id for t in fill(engine, prompt, anchors, options, stats)] == own
            assert stats.passes <= plain.passes
            assert stats.refused == sum(own[p] != i for p, i in places.items() if p < len(own))
