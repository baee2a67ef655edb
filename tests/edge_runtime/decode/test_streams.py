"""Streams read by `async for`, and answers refined by late payloads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.decode.forced import Source, Token, fill
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.decode.streams import aiter_tokens
from tests.edge_runtime.hash_engine import CONTRACT, HashEngine, anchors_of

PLACES = {0: 3, 1: 4, 9: 5, 30: 6}


def test_async_for_gives_the_same_stream_off_the_event_loop() -> None:
    engine, anchors = HashEngine(), anchors_of(PLACES, length=40)
    threads = set()
    run = engine._run

    def noted(ids: Sequence[int], rows: Sequence[int]) -> Any:
        threads.add(threading.get_ident())
        return run(ids, rows)

    engine._run = noted

    async def read() -> list[Token]:
        return [token async for token in aiter_tokens(fill(engine, [1, 2], anchors))]

    assert asyncio.run(read()) == list(fill(HashEngine(), [1, 2], anchors))
    assert threading.get_ident() not in threads


def test_leaving_an_async_stream_early_leaves_the_engine_ready() -> None:
    engine, anchors = HashEngine(), anchors_of(PLACES, length=40)

    async def read() -> list[Token]:
        async with aclosing(aiter_tokens(fill(engine, [1, 2], anchors))) as tokens:
            async for _ in tokens:
                break
        return [token async for token in aiter_tokens(fill(engine, [1, 2], anchors))]

    assert asyncio.run(read()) == list(fill(HashEngine(), [1, 2], anchors))


def test_a_cancelled_task_ends_at_once_and_the_stream_after_its_pass() -> None:
    engine, anchors = HashEngine(), anchors_of(PLACES, length=40)
    expected = list(fill(HashEngine(), [1, 2], anchors))
    run, entered, proceed = engine._run, threading.Event(), threading.Event()

    def slow(ids: Sequence[int], rows: Sequence[int]) -> Any:
        entered.set()
        assert proceed.wait(30)
        return run(ids, rows)

    engine._run = slow
    stream = fill(engine, [1, 2], anchors)

    async def consume() -> None:
        async for _ in aiter_tokens(stream):
            pass

    async def cancel() -> None:
        task = asyncio.create_task(consume())
        assert await asyncio.to_thread(entered.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proceed.set()

    asyncio.run(cancel())
    assert stream.gi_frame is None  # closed
    engine._run = run
    assert list(fill(engine, [1, 2], anchors)) == expected


def test_errors_come_through_an_async_stream() -> None:
    engine = HashEngine()

    def broken(ids: Sequence[int], rows: Sequence[int]) -> Any:
        raise RuntimeError("no")

    engine._run = broken

    async def read() -> None:
        async for _ in aiter_tokens(fill(engine, [1, 2], anchors_of({}))):
            pass

    with pytest.raises(RuntimeError):
        asyncio.run(read())


def test_only_what_the_payload_contradicts_is_taken_back() -> None:
    nothing = anchors_of({}, canvas=12)
    answers = ([t.id for t in fill(HashEngine(seed=seed), [1], nothing)] for seed in range(200))
    seed, greedy = next((s, a) for s, a in enumerate(answers) if len(a) == 12 and max(a) < 12)
    other = (greedy[7] + 1) % 12
    anchors = anchors_of({3: greedy[3], 7: other}, length=12)
    feed = AnchorFeed()
    items = []
    for item in fill_refined(HashEngine(seed=seed), [1], feed, CONTRACT):
        items.append(item)
        if len(items) == 10:
            feed.put(anchors)
            feed.close()
    assert items[10] == Retract(7)
    assert (items[11].id, items[11].position, items[11].source) == (other, 7, Source.ANCHOR)
    assert len(items) == 11 + 5


anchor_sets = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 19), st.integers(0, 11), max_size=12),
        st.none() | st.integers(20, 24),
        st.integers(0, 12),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=4,
)


@given(
    prompt=st.lists(st.integers(0, 14), min_size=1, max_size=4),
    sets=anchor_sets,
    seed=st.integers(0, 500),
)
def test_refined_by_several_payloads_it_is_the_answer_of_the_last(
    prompt: list[int], sets: list[tuple[dict[int, int], int | None, int, int]], seed: int
) -> None:
    """Each payload is for one of two models; the answer begins with the first's."""
    payloads = [anchors_of(places, canvas=24, length=length) for places, length, *_ in sets]
    models = [HashEngine(seed=seed, context=64), HashEngine(seed=seed + 1000, context=64)]
    expected = [t.id for t in fill(HashEngine(seed=seed + 1000 * sets[-1][3]), prompt, payloads[-1])]
    feed, coming = AnchorFeed(), iter(zip(payloads, sets, strict=True))
    tokens: list[Token] = []
    retractions, wait = 0, sets[0][2]
    left, which = len(payloads), 0
    stream = fill_refined(models[0], prompt, feed, CONTRACT, model_of=lambda: models[which])

    def bring() -> None:
        nonlocal left, wait, which
        anchors, (*_, wait, which) = next(coming)
        feed.put(anchors)
        left -= 1
        if not left:
            feed.close()

    # What comes while the answer is being written comes in the midst of it, the rest when it waits.
    feed.newer = lambda version, timeout=None: (  # type: ignore[method-assign]
        bring() if left and feed.version == version else None,
        AnchorFeed.newer(feed, version, timeout),
    )[1]
    for item in stream:
        if isinstance(item, Retract):
            assert item.position < len(tokens)
            del tokens[item.position :]
            retractions += 1
            continue
        assert item.position == len(tokens)
        tokens.append(item)
        wait -= 1
        if wait < 0 and left:
            bring()
    assert [t.id for t in tokens] == expected
    assert retractions <= len(payloads)


def test_a_feed_that_breaks_says_so_and_one_that_ends_leaves_the_answer() -> None:
    broken, ended = AnchorFeed(), AnchorFeed()
    broken.close(TimeoutError("the cloud did not answer"))
    with pytest.raises(TimeoutError):
        list(fill_refined(HashEngine(), [1], broken, CONTRACT))
    ended.close()
    alone = list(fill_refined(HashEngine(context=64), [1], ended, CONTRACT))
    assert alone == list(fill(HashEngine(), [1], anchors_of({}, canvas=64)))[: len(alone)]
