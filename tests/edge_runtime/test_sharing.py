"""One runtime and many callers: threads, tasks and half-read answers each get the text of an answer alone."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from random import Random

import numpy as np
import pytest

from edge_runtime.decode.forced import FillOptions, Token
from edge_runtime.decode.streams import aiter_tokens
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.engine.shared import SharedModel
from edge_runtime.engine.turns import Turns
from edge_runtime.errors import EngineError
from edge_runtime.runtime import EdgeRuntime, FillRequest
from edge_runtime.session import EdgeSession
from payload import AnchorSet
from tests.edge_runtime.test_session import FOLDER

PLACES = ("Japan", "Chile", "Kenya", "Norway", "Peru", "Egypt", "Spain", "Nepal")
QUESTIONS = tuple(f"What is the {what} of {of}?" for of in PLACES for what in ("capital", "currency"))
SHORT = FillOptions(max_tokens=10)
FILLS = int(os.environ.get("SHARED_FILLS", "160"))
"""Of each test of threads and of tasks."""


def opened(engines: int = 1) -> EdgeRuntime:
    return EdgeRuntime.open(FOLDER, "int8", threads=1, prepack=False, engines=engines)


def asked(edge: EdgeRuntime, question: str) -> FillRequest:
    return FillRequest(edge.prompt_ids(question), edge.no_anchors)


def ids(tokens: Sequence[object]) -> list[int]:
    return [token.id for token in tokens if isinstance(token, Token)]


@pytest.fixture(scope="module")
def alone() -> dict[str, list[int]]:
    """The answer of a fresh runtime to each question."""
    edge = opened()
    return {each: ids(list(edge.fill(asked(edge, each), SHORT))) for each in QUESTIONS}


@pytest.mark.parametrize("engines", [1, 2])
def test_threads_get_the_texts_of_answers_alone(engines: int, alone: dict[str, list[int]]) -> None:
    """Fills, sessions and answers that are left, mixed in four threads."""
    edge = opened(engines)

    def work(seed: int) -> list[tuple[str, list[int]]]:
        random, found = Random(seed), []
        for _ in range(FILLS // 4):
            question = random.choice(QUESTIONS)
            if random.random() < 0.3:
                left = edge.fill(asked(edge, random.choice(QUESTIONS)), SHORT)
                next(left)
                if random.random() < 0.5:
                    left.close()  # else it is dropped without
            if random.random() < 0.3:
                found.append((question, ids(list(EdgeSession(edge).ask(question, SHORT)))))
            else:
                found.append((question, ids(list(edge.fill(asked(edge, question), SHORT)))))
        return found

    with ThreadPoolExecutor(4) as pool:
        answers = list(itertools.chain.from_iterable(pool.map(work, range(4))))
    assert [each for each in answers if each[1] != alone[each[0]]] == []


def test_tasks_get_the_texts_of_answers_alone(alone: dict[str, list[int]]) -> None:
    """Of three tasks one is cancelled."""
    edge = opened()

    async def answer(question: str) -> list[int]:
        async with aclosing(aiter_tokens(edge.fill(asked(edge, question), SHORT))) as tokens:
            return ids([token async for token in tokens])

    async def all_answers() -> None:
        for _ in range(max(1, FILLS // 160)):
            tasks = {
                number: asyncio.create_task(answer(each))
                for number, each in enumerate(QUESTIONS * min(10, FILLS // 16))
            }
            await asyncio.sleep(0.01)
            for number in range(0, len(tasks), 3):
                tasks.pop(number).cancel()
            found = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
            assert found == {number: alone[(QUESTIONS * 10)[number]] for number in tasks}

    asyncio.run(all_answers())


def test_half_read_answers_of_one_thread_take_turns(alone: dict[str, list[int]]) -> None:
    edge = opened()
    streams = [edge.fill(asked(edge, each), SHORT) for each in QUESTIONS]
    rounds = itertools.zip_longest(*streams)
    assert [ids(tokens) for tokens in zip(*rounds, strict=True)] == list(alone.values())


def test_predictive_payloads_are_read_side_by_side(tmp_path: Path) -> None:
    from payload import Shared, encode

    edge = opened()
    contract = edge.bundle.contract
    anchors = {each: AnchorSet((0, 2), (5, 40 + i), 12, contract, 8) for i, each in enumerate(PLACES)}
    payloads = {
        each: encode(
            found, Shared(edge.bundle.contract, predictor=edge.predictor(edge.prompt_ids(each))), "predictive"
        )
        for each, found in anchors.items()
    }
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            assert list(pool.map(lambda each: edge.read(payloads[each], each).anchors, PLACES)) == list(
                anchors.values()
            )


class CountingEngine(Engine):
    """Logits of the whole text; forks count together."""

    def __init__(self) -> None:
        super().__init__(context=64, vocab=16)
        self.ran: list[int] = []
        self.fails = False

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        if self.fails:
            raise EngineError("no")
        self.ran.append(len(ids))
        text = [*self.tokens, *ids]
        return np.eye(16, dtype=np.float32)[[sum(text[: self.length + row + 1]) % 16 for row in rows]]


@pytest.fixture
def ran() -> tuple[SharedModel, CountingEngine]:
    engine = CountingEngine()
    return SharedModel(engine), engine


def test_a_text_goes_on_with_the_cache_that_has_most_of_it(ran: tuple[SharedModel, CountingEngine]) -> None:
    model, engine = ran
    first, second = [1, 2, *range(10)], [1, 2, *range(10, 0, -1)]
    for text in (first, second, [*first, 7], [*second, 8]):
        with model.lease(text) as held:
            held.append(text[held.length :])
    assert engine.ran == [12, 10, 1, 1]  # the second has the two tokens of the first, which keeps its own


def test_a_cache_is_not_used_again_after_an_error(ran: tuple[SharedModel, CountingEngine]) -> None:
    model, engine = ran
    engine.fails = True
    with pytest.raises(EngineError), model.lease([1]) as held:
        held.append([1])
    with model.lease([1]) as held:
        assert held is not engine


def test_few_caches_wait() -> None:
    model = SharedModel(CountingEngine(), most=0)
    leases = [model.lease([number]) for number in range(40)]
    for number, lease in enumerate(leases):
        lease.__enter__().append([number % 16])
    for lease in leases:
        lease.__exit__(None, None, None)
    assert len(model._waiting) == 16


def test_turns_are_taken_in_order_and_an_interrupt_gives_its_place_up() -> None:
    turns, order = Turns(), list[int]()

    def wait(number: int) -> None:
        with turns:
            order.append(number)

    with turns:
        threads = []
        for number in range(8):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            while len(turns._waiting) <= number:
                pass
    for thread in threads:
        thread.join(10)
    assert order == list(range(8))
