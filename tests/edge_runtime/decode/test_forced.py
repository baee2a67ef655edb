"""Forced decoding against a decoder that runs one pass per position, written from the paper's section 3.2."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.decode.endings import Stop, ending
from edge_runtime.decode.forced import (
    FillOptions,
    FillStats,
    Source,
    Token,
    agreement,
    chunks,
    common_prefix,
    fill,
)
from edge_runtime.errors import ContextError, EngineError, UsageError
from payload import AnchorSet
from tests.edge_runtime.hash_engine import HashEngine, anchors_of, hash_logits


def one_at_a_time(
    logits_after: Callable[[list[int]], np.ndarray], prompt: list[int], anchors: AnchorSet, limit: int
) -> list[tuple[int, bool, float]]:
    """(id, was forced, log P) of each token: one prediction per position, nothing shared with `fill`."""
    forced = anchors.by_position
    last = max(forced, default=-1)
    dense = len(forced) / anchors.canvas > 0.4
    answer: list[tuple[int, bool, float]] = []
    while len(answer) < limit:
        position = len(answer)
        if anchors.length is not None:
            if position == anchors.length:
                break
        elif dense and position > last:
            break
        logits = logits_after([*prompt, *(id_ for id_, _, _ in answer)]).astype(np.float64)
        log_p = logits - np.log(np.sum(np.exp(logits)))
        if position in forced:
            choice = forced[position]
        else:
            if anchors.length is not None or position < last:
                logits[list(anchors.contract.eos_ids)] = -np.inf
            choice = int(np.argmax(logits))
            if choice in anchors.contract.eos_ids:
                break
        answer.append((choice, position in forced, float(log_p[choice])))
    return answer


Problem = tuple[list[int], AnchorSet, int]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A prompt, anchors, perhaps with a length, and the model's seed."""
    prompt = draw(st.lists(st.integers(0, 14), min_size=1, max_size=12))
    canvas = draw(st.integers(1, 40))
    length = draw(st.none() | st.integers(0, canvas))
    end = canvas if length is None else length
    places = draw(st.dictionaries(st.integers(0, end - 1), st.integers(0, 11), max_size=30)) if end else {}
    return prompt, anchors_of(places, canvas, length=length), draw(st.integers(0, 1000))


@given(problems(), st.integers(1, 50), st.integers(1, 9), st.integers(1, 5))
def test_chunked_equals_one_at_a_time(problem: Problem, limit: int, max_chunk: int, max_rows: int) -> None:
    prompt, anchors, seed = problem
    most = min(limit, anchors.canvas)
    expected = one_at_a_time(partial(hash_logits, seed=seed), prompt, anchors, most)
    for options in (
        FillOptions(max_tokens=most),
        FillOptions(max_tokens=most, max_chunk=max_chunk, max_rows=max_rows),
    ):
        tokens = list(fill(HashEngine(seed=seed), prompt, anchors, options))
        assert [(t.id, t.source is Source.ANCHOR) for t in tokens] == [(i, f) for i, f, _ in expected]
        assert [t.position for t in tokens] == list(range(len(expected)))
        np.testing.assert_allclose(
            [t.logprob for t in tokens], [score for _, _, score in expected], rtol=1e-5, atol=1e-5
        )


@given(problems())
def test_unscored_anchors_change_nothing_but_their_scores(problem: Problem) -> None:
    prompt, anchors, seed = problem
    scored = list(fill(HashEngine(seed=seed), prompt, anchors))
    engine = HashEngine(seed=seed)
    plain = list(fill(engine, prompt, anchors, FillOptions(score_anchors=False)))
    assert [t._replace(logprob=None) for t in plain] == [t._replace(logprob=None) for t in scored]
    assert all((t.logprob is None) == (t.source is Source.ANCHOR) for t in plain)
    assert all(rows == 1 for _, rows in engine.passes)


@given(problems())
def test_one_pass_for_the_prompt_and_one_for_each_gap_token(problem: Problem) -> None:
    prompt, anchors, seed = problem
    for scored in (True, False):
        engine, stats = HashEngine(seed=seed), FillStats()
        tokens = list(fill(engine, prompt, anchors, FillOptions(score_anchors=scored), stats))
        gaps = sum(t.source is Source.FILL for t in tokens)
        expected = 1 + gaps
        if stats.stop is not Stop.EOS and (not tokens or tokens[-1].source is Source.FILL or not scored):
            expected -= 1  # nothing has to be predicted after the last token
        assert len(engine.passes) == stats.passes == expected
        assert sum(size for size, _ in engine.passes) == stats.computed


def test_a_complete_answer_needs_no_pass_unless_it_is_scored() -> None:
    anchors = anchors_of({0: 1, 1: 2, 2: 3}, length=3)
    engine = HashEngine()
    assert [t.id for t in fill(engine, [5, 6], anchors, FillOptions(score_anchors=False))] == [1, 2, 3]
    assert engine.passes == []
    assert [t.id for t in fill(engine, [5, 6], anchors)] == [1, 2, 3]
    assert engine.passes == [(4, 3)]  # the last anchor predicts nothing that is asked for


def test_leading_anchors_ride_with_the_prompt_and_later_ones_with_the_gap_before_them() -> None:
    anchors = anchors_of({0: 1, 1: 2, 4: 3, 5: 4, 8: 5}, length=10)
    engine = HashEngine()
    list(fill(engine, [7, 7, 7], anchors))
    assert engine.passes == [(5, 3), (1, 1), (3, 3), (1, 1), (2, 2)]


def test_end_tokens_are_held_back_while_anchors_remain() -> None:
    prompt = next([i, j] for i in range(12) for j in range(12) if hash_logits([i, j]).argmax() in (12, 14))
    assert list(fill(HashEngine(), prompt, anchors_of({}))) == []
    anchors = anchors_of({20: 3})
    tokens = list(fill(HashEngine(), prompt, anchors))
    assert tokens[20].source is Source.ANCHOR
    assert not {12, 14} & {t.id for t in tokens}
    logits = hash_logits(prompt).astype(np.float64)
    assert tokens[0].logprob == pytest.approx(logits[tokens[0].id] - np.log(np.exp(logits).sum()))
    assert len(list(fill(HashEngine(), prompt, anchors_of({}, length=9)))) == 9


@pytest.mark.parametrize(
    ("places", "length", "max_tokens", "room", "expected"),
    [
        (dict.fromkeys(range(8), 1), None, None, 99, (20, Stop.LIMIT)),  # 40% is not more than 40%
        ({**dict.fromkeys(range(8), 1), 14: 1}, None, None, 99, (15, Stop.LAST_ANCHOR)),
        ({0: 1, 1: 1, 4: 1}, None, None, 99, (20, Stop.LIMIT)),  # a dense beginning says nothing of the end
        ({0: 1, 1: 1, 4: 1}, 9, None, 99, (9, Stop.LENGTH)),
        ({0: 1, 1: 1, 4: 1}, 9, 7, 99, (7, Stop.LIMIT)),
        ({0: 1, 1: 1, 4: 1}, None, 3, 99, (3, Stop.LIMIT)),
        ({}, None, None, 6, (6, Stop.LIMIT)),
        ({}, None, None, 99, (20, Stop.LIMIT)),
        ({}, 0, None, 99, (0, Stop.LENGTH)),
    ],
)
def test_stop_rules(
    places: dict[int, int], length: int | None, max_tokens: int | None, room: int, expected: tuple[int, Stop]
) -> None:
    rule = ending(anchors_of(places, canvas=20, length=length), room, max_tokens)
    assert (rule.end, rule.stop) == expected


def test_the_stop_is_reported() -> None:
    for anchors, stop in (
        (anchors_of({0: 1, 5: 2}, length=7), Stop.LENGTH),
        (anchors_of({0: 1, 1: 2}, canvas=4), Stop.LAST_ANCHOR),
        (anchors_of({}, canvas=3), Stop.LIMIT),
        (anchors_of({}, canvas=4000), Stop.EOS),
    ):
        stats = FillStats()
        list(fill(HashEngine(), [3], anchors, stats=stats))
        assert stats.stop is stop


@given(problems(), st.integers(0, 20), problems())
def test_a_closed_iterator_leaves_the_engine_ready(first: Problem, taken: int, second: Problem) -> None:
    engine = HashEngine(seed=second[-1])
    tokens = fill(engine, *first[:2])
    for _ in zip(range(taken), tokens, strict=False):
        pass
    tokens.close()  # type: ignore[attr-defined]
    prompt, anchors, seed = second
    fresh = list(fill(HashEngine(seed=seed), prompt, anchors))
    assert list(fill(engine, prompt, anchors)) == fresh


def test_an_interrupted_pass_leaves_the_engine_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, anchors = HashEngine(), anchors_of({3: 1, 9: 4}, length=12)
    expected = list(fill(HashEngine(), [1, 2, 3], anchors))
    tokens = fill(engine, [1, 2, 3], anchors)
    next(tokens)

    def interrupted(ids: Sequence[int], rows: Sequence[int]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(tokens)
    assert list(fill(engine, [1, 2, 3], anchors)) == expected


def test_a_shared_beginning_is_not_run_again() -> None:
    engine, anchors = HashEngine(), anchors_of({0: 4}, length=6)
    list(fill(engine, [1, 2, 3, 4], anchors))
    for prompt, reused in (([1, 2, 9], 2), ([1, 2, 9], 2), ([1, 2], 1), ([7], 0)):
        stats = FillStats()
        tokens = list(fill(engine, prompt, anchors, stats=stats))
        assert tokens == list(fill(HashEngine(), prompt, anchors))
        assert stats.reused == reused


def test_what_does_not_fit_is_refused_before_anything_runs() -> None:
    engine = HashEngine(context=10)
    with pytest.raises(UsageError):
        fill(engine, [], anchors_of({}))
    with pytest.raises(ContextError):
        fill(engine, [1] * 10, anchors_of({}))
    with pytest.raises(ContextError):
        fill(engine, [1] * 4, anchors_of({7: 1}))
    assert len(list(fill(engine, [1] * 4, anchors_of({7: 1}, length=20), FillOptions(max_tokens=6)))) == 6
    assert engine.length <= 10


def test_a_model_that_returns_nan_is_an_error() -> None:
    engine = HashEngine()
    engine._run = lambda ids, rows: np.full((len(rows), 15), np.nan, np.float32)
    with pytest.raises(EngineError):
        list(fill(engine, [1], anchors_of({})))


def test_engine_arguments_are_checked() -> None:
    engine = HashEngine(context=4)
    for ids, rows, error in (
        ([], [], EngineError),
        ([15], [], EngineError),
        ([-1], [], EngineError),
        ([1], [1], EngineError),
        ([1] * 5, [], ContextError),
    ):
        with pytest.raises(error):
            engine.append(ids, rows)
    with pytest.raises(EngineError):
        engine.rewind(1)
    assert engine.length == 0


@given(st.data())
def test_chunks_cover_every_token_and_row_within_their_bounds(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60))
    rows = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    max_chunk, max_rows = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 20))
    pieces = list(chunks(size, rows, max_chunk, max_rows))
    assert [i for start, stop, _ in pieces for i in range(start, stop)] == list(range(size))
    assert [start + row for start, _, wanted in pieces for row in wanted] == rows
    assert all(stop - start <= max_chunk and len(wanted) <= max_rows for start, stop, wanted in pieces)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_prefix(first: list[int], second: list[int]) -> None:
    size = common_prefix(first, second)
    assert first[:size] == second[:size]
    assert first[size : size + 1] != second[size : size + 1] or size == len(first) == len(second)


def test_agreement_is_the_geometric_mean_probability_of_the_anchors() -> None:
    tokens = [
        Token(1, 0, Source.ANCHOR, math.log(0.5)),
        Token(1, 1, Source.FILL, math.log(0.9)),
        Token(1, 2, Source.ANCHOR, math.log(0.125)),
    ]
    assert agreement(tokens) == pytest.approx(0.25)
    assert agreement(tokens[1:2]) is None
