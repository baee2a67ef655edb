"""The batch engine: rows that join and leave, admission, deadlines, and failures."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.select import Selection
from cloud_anchor.serve.batching.backend import AnchorRequest
from cloud_anchor.serve.batching.engine import BatchEngine
from cloud_anchor.serve.batching.jobs import Job, JobEvent, ServedPayload
from cloud_anchor.serve.errors import ServiceError, refused
from cloud_anchor.serve.settings import Limits
from edge_runtime.errors import ContextError
from edge_runtime.text.chat import as_messages
from payload import Base, Shared, decode
from tests.cloud_anchor.serve.service_runner import local

PLAN = DenoiseConfig(canvas=24, total_steps=12)
PROMPTS = ["Where does the river end?", "Name a town.", "How many loaves did the baker sell in all?", "Why?"]


class Gate:
    """Holds the model's passes back until it is opened, and keeps the number of rows of each."""

    def __init__(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.waiting = threading.Event(), threading.Event()
        self.rows: list[int] = []
        self.error: BaseException | None = None
        self.most = 1 << 30
        plain = model.logits

        def logits(batch: Any, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
            self.waiting.set()
            assert self.open.wait(30)
            if self.error is not None or len(ids) > self.most:
                raise self.error or torch.OutOfMemoryError("no more")
            self.rows.append(len(ids))
            result: torch.Tensor = plain(batch, ids, *rest)
            return result

        monkeypatch.setattr(model, "logits", logits)


@pytest.fixture
def gate(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(pipeline.model, monkeypatch)


Build = Callable[..., BatchEngine]


@pytest.fixture
def build(pipeline: Pipeline) -> Iterator[Build]:
    """Makes engines that are not started yet, so that the first step has all jobs; they end with the test."""
    made: list[BatchEngine] = []

    def engine(batch: int = 4, queue: int = 4) -> BatchEngine:
        made.append(BatchEngine(pipeline, Limits(batch=batch, queue=queue, deadline=60)))
        return made[-1]

    yield engine
    for each in made:
        each.close()


@pytest.fixture
def engine(build: Build) -> BatchEngine:
    made = build(2, 2)
    made.start()
    return made


class Submitted:
    """A job and the events that it gets."""

    def __init__(
        self,
        engine: BatchEngine,
        prompt: str,
        payload_steps: Sequence[int] = (3,),
        allowed: float = 60,
        selection: Selection | None = None,
        plan: DenoiseConfig = PLAN,
        **more: Any,
    ) -> None:
        self.events: queue.Queue[JobEvent] = queue.Queue()
        ids = tuple(engine.pipeline.form.ids(prompt))
        self.job = Job(
            ids, plan, tuple(payload_steps), selection or Selection("paper"), allowed, self.events.put, **more
        )
        engine.submit(self.job)

    def next(self) -> JobEvent:
        return self.events.get(timeout=30)

    def ready(self) -> ServedPayload:
        event = self.next()
        assert isinstance(event, ServedPayload), event
        return event


def alone(pipeline: Pipeline, prompt: str, steps: int) -> bytes:
    """The payload that the command line would have made."""
    (made,) = pipeline.make(
        [prompt], DenoiseConfig(canvas=24, total_steps=12, steps=steps), Selection("paper")
    )
    return pipeline.payload(made)


def test_rows_that_join_and_leave_a_batch_are_the_same_as_alone(pipeline: Pipeline) -> None:
    ids = [pipeline.form.ids(prompt) for prompt in PROMPTS]
    running: ContinuousBatch[int] = ContinuousBatch(pipeline.model, PLAN)
    found: dict[tuple[int, int], list[int]] = {}
    for step in range(1, 20):
        if step <= len(ids):
            running.join(step - 1, ids[step - 1], (2, 5, 7))
        if step == 3:
            running.leave([1])
        other = running.split() if step == 4 else None
        for each in (running, other):
            for seen in each.step() if each else []:
                found[seen.name, seen.run.steps] = seen.run.ids
                assert seen.done == (seen.run.steps == 7)
        if other:  # the halves come together again
            running, rest = other, running
            assert (len(running), len(rest)) == (1, 2)
            while len(rest):
                found |= {(seen.name, seen.run.steps): seen.run.ids for seen in rest.step()}
    assert not len(running)
    assert {name for name, _ in found} == {0, 2, 3}
    for (name, steps), tokens in found.items():
        (expected,) = denoise(
            pipeline.model, [ids[name]], DenoiseConfig(canvas=24, total_steps=12, steps=steps)
        )
        assert tokens == expected.ids
    assert len(found) == 9


def test_every_job_gets_the_payload_that_it_gets_alone(engine: BatchEngine, pipeline: Pipeline) -> None:
    asked = [Submitted(engine, prompt, (steps,)) for prompt, steps in zip(PROMPTS, (2, 5, 3, 4), strict=True)]
    for one, prompt, steps in zip(asked, PROMPTS, (2, 5, 3, 4), strict=True):
        ready = one.ready()
        assert ready.data == alone(pipeline, prompt, steps)
        assert (ready.step, ready.last, ready.delta) == (steps, True, False)


def test_a_waiting_job_replaces_a_finished_one(engine: BatchEngine, gate: Gate) -> None:
    first, second, third = (Submitted(engine, PROMPTS[i], (steps,)) for i, steps in enumerate((2, 6, 4)))
    gate.open.set()
    for asked in (first, second, third):
        asked.ready()
    # The first step may have begun with the first job alone.
    assert gate.rows in ([2] * 6, [1] + [2] * 5 + [1])


def test_a_long_prompt_does_not_lengthen_the_rows_of_others(
    build: Build, pipeline: Pipeline, gate: Gate
) -> None:
    engine = build()
    prompts = [*PROMPTS[:3], " ".join(PROMPTS * 4)]
    taken = [Submitted(engine, prompt) for prompt in prompts]
    engine.start()
    gate.open.set()
    for asked, prompt in zip(taken, prompts, strict=True):
        assert asked.ready().data == alone(pipeline, prompt, 3)
    assert gate.rows[:6] == [3, 1] * 3


def test_a_long_prompt_takes_the_place_of_as_many_rows_as_it_costs(build: Build, gate: Gate) -> None:
    engine = build(3, 4)
    taken = [Submitted(engine, PROMPTS[1], (2,), rows=rows) for rows in (1, 3, 1, 1, 5)]
    engine.start()
    gate.open.set()
    assert all(asked.ready().last for asked in taken)
    # In order: nobody passes the second, and one that asks for more than there is runs alone.
    assert gate.rows == [1] * 4 + [2] * 2 + [1] * 2


def test_a_prompt_takes_as_many_rows_as_its_tokens_cost(pipeline: Pipeline) -> None:
    backend, canvas = local(pipeline, plan=PLAN), PLAN.canvas
    for tokens, rows in ((canvas // 2, 1), (2 * canvas, 2), (5 * canvas, 4)):
        job = backend._job(AnchorRequest(as_messages("?")), [1] * tokens, lambda event: None)
        assert job.rows == rows


def test_while_others_ask_a_client_has_half_of_the_places(build: Build) -> None:
    engine = build()
    Submitted(engine, PROMPTS[0], (2,), client="tablet")
    for _ in range(4):
        Submitted(engine, PROMPTS[0], (2,), client="stranger")
    with pytest.raises(ServiceError):
        Submitted(engine, PROMPTS[0], client="stranger")


def test_payloads_of_a_stream_add_up(engine: BatchEngine, pipeline: Pipeline) -> None:
    asked = Submitted(engine, PROMPTS[0], (2, 4, 12))
    contract, ids = pipeline.form.contract, list(asked.job.prompt_ids)
    base: Base | None = None
    for steps in (2, 4, 12):
        ready = asked.ready()
        anchors = decode(ready.data, Shared(contract, ids, base=base if ready.delta else None))
        expected = decode(alone(pipeline, PROMPTS[0], steps), Shared(contract, ids))
        assert (anchors.positions, anchors.ids, anchors.length) == (
            expected.positions,
            expected.ids,
            expected.length,
        )
        assert ready.last == (steps == 12)
        base = Base(ready.data, anchors)


def test_self_contained_payloads_need_no_base(engine: BatchEngine, pipeline: Pipeline) -> None:
    asked = Submitted(engine, PROMPTS[0], (2, 4), self_contained=True)
    for steps in (2, 4):
        ready = asked.ready()
        assert not ready.delta
        assert ready.data == alone(pipeline, PROMPTS[0], steps)


def test_a_full_queue_refuses_with_the_time_to_retry(engine: BatchEngine, gate: Gate) -> None:
    taken = [Submitted(engine, prompt) for prompt in PROMPTS]
    with pytest.raises(ServiceError) as refusal:
        Submitted(engine, PROMPTS[0])
    assert (refusal.value.status, refusal.value.code) == (503, "overloaded")
    with engine._changed:
        engine._forecast.speed.add(2, 30.0)
        done = max(engine._forecast.finish_times(list(engine._jobs), 2))
    with pytest.raises(ServiceError) as refusal:
        Submitted(engine, PROMPTS[0])
    assert refusal.value.retry_after == pytest.approx(done, rel=0.01)
    assert done > 30
    gate.open.set()
    assert all(asked.ready().last for asked in taken)
    assert Submitted(engine, PROMPTS[0]).ready().last


def test_a_job_that_would_miss_its_deadline_is_refused_at_once(engine: BatchEngine, gate: Gate) -> None:
    gate.open.set()
    Submitted(engine, PROMPTS[0]).ready()
    engine._forecast.speed.add(1, 1000.0)  # a slow model
    gate.open.clear()
    gate.waiting.clear()
    before = Submitted(engine, PROMPTS[1], (12,), 600)
    with pytest.raises(ServiceError):
        Submitted(engine, PROMPTS[0], (1,), 5)
    engine.cancel(before.job)  # it is still there, and leaves before the next step
    asked = Submitted(engine, PROMPTS[0], (1,), 5)
    gate.open.set()
    assert asked.ready().last


def test_a_cancelled_job_leaves_the_batch_at_the_next_step(engine: BatchEngine, gate: Gate) -> None:
    left, stays = Submitted(engine, PROMPTS[0], (12,)), Submitted(engine, PROMPTS[1], (12,))
    waits = Submitted(engine, PROMPTS[2], (12,))
    assert gate.waiting.wait(30)
    engine.cancel(left.job)
    engine.cancel(waits.job)
    gate.open.set()
    assert stays.ready().last
    assert sum(rows == 2 for rows in gate.rows) <= 1
    assert left.events.empty()
    assert waits.events.empty()
    until(lambda: not any(engine.figures().values()))


def test_a_deadline_ends_a_job_and_only_that(engine: BatchEngine, gate: Gate) -> None:
    late, fine = Submitted(engine, PROMPTS[0], (12,), 0.05), Submitted(engine, PROMPTS[1], (12,))
    assert gate.waiting.wait(30)
    time.sleep(0.1)
    gate.open.set()
    event = late.next()
    assert isinstance(event, ServiceError)
    assert (event.status, event.code) == (504, "deadline_exceeded")
    assert fine.ready().last


def test_out_of_memory_halves_the_batch_for_a_while_and_no_job_fails(
    build: Build, pipeline: Pipeline, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = build(4, 12)
    gate.most = 2
    taken = [Submitted(engine, prompt) for prompt in PROMPTS]
    engine.start()
    gate.open.set()
    for asked, prompt in zip(taken, PROMPTS, strict=True):
        assert asked.ready().data == alone(pipeline, prompt, 3)
    later = [Submitted(engine, prompt) for prompt in PROMPTS]
    assert all(asked.ready().last for asked in later)
    assert max(gate.rows) == 2
    assert engine.healthy
    monkeypatch.setattr("cloud_anchor.serve.batching.engine.STEPS_BEFORE_GROWTH", 2)
    gate.most = 4
    assert Submitted(engine, PROMPTS[0]).ready().last
    until(lambda: engine._batch > 2)


def test_a_job_that_does_not_fit_alone_fails_alone(engine: BatchEngine, gate: Gate) -> None:
    gate.most = 0
    gate.open.set()
    event = Submitted(engine, PROMPTS[0]).next()
    assert isinstance(event, ServiceError)
    assert (event.status, event.code) == (503, "out_of_memory")
    gate.most = 2
    assert Submitted(engine, PROMPTS[0]).ready().last


def test_failed_steps_are_errors_and_the_engine_is_unhealthy_until_one_succeeds(
    engine: BatchEngine, gate: Gate
) -> None:
    gate.error = ValueError("a secret of the inside")
    gate.open.set()
    for _ in range(3):
        event = Submitted(engine, PROMPTS[0]).next()
        assert isinstance(event, ServiceError)
        assert (event.status, event.code) == (500, "internal")
        assert "secret" not in str(event)
    assert not engine.healthy
    gate.error = None
    assert Submitted(engine, PROMPTS[0]).ready().last
    assert engine.healthy


def test_a_row_that_fails_ends_alone_and_its_batch_mates_are_answered(
    build: Build, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = build()
    taken = [Submitted(engine, prompt) for prompt in PROMPTS]
    step, poisoned = ContinuousBatch.step, taken[1].job

    def failing(batch: ContinuousBatch[Job]) -> Any:
        if poisoned in batch.names:
            raise ContextError("expected a prompt within the edge model's 16 tokens, found 17. Shorten it.")
        return step(batch)

    monkeypatch.setattr(ContinuousBatch, "step", failing)
    engine.start()
    refusal = taken[1].next()
    assert isinstance(refusal, ServiceError)
    assert (refusal.status, refusal.code) == (422, "invalid_request")
    for index in (0, 2, 3):
        assert taken[index].ready().data == alone(pipeline, PROMPTS[index], 3)
    assert engine.healthy, "a request's own fault is none of the model"


def test_a_closing_engine_finishes_admitted_jobs(engine: BatchEngine, gate: Gate) -> None:
    taken = [Submitted(engine, prompt) for prompt in PROMPTS]
    closing = threading.Thread(target=engine.close)
    closing.start()
    until(lambda: engine._closing)
    with pytest.raises(ServiceError) as refusal:
        Submitted(engine, PROMPTS[0])
    assert refusal.value.code == "stopping"
    gate.open.set()
    assert all(asked.ready().last for asked in taken)
    closing.join(30)
    assert not closing.is_alive()


def test_a_job_admitted_while_the_last_one_is_dropped_is_finished_by_close(
    build: Build, pipeline: Pipeline
) -> None:
    engine = build(2, 2)
    admitted: list[Submitted] = []
    closing = threading.Thread(target=engine.close)

    def deliver(event: JobEvent) -> None:  # in the model's thread, between the queue and the batch
        assert isinstance(event, ServiceError)
        admitted.append(Submitted(engine, PROMPTS[1]))
        closing.start()
        until(lambda: engine._closing)

    engine.submit(Job(tuple(pipeline.form.ids(PROMPTS[0])), PLAN, (3,), Selection("paper"), 0, deliver))
    engine.start()
    until(lambda: engine._closing)
    closing.join(30)
    assert not closing.is_alive()
    assert admitted[0].ready().last


def test_a_run_without_commits_sends_no_anchors(engine: BatchEngine, pipeline: Pipeline) -> None:
    asked = Submitted(engine, "?", (1,), plan=DenoiseConfig(canvas=24, total_steps=1000))
    ready = asked.ready()
    assert ready.anchors == 0
    assert len(decode(ready.data, Shared(pipeline.form.contract, asked.job.prompt_ids))) == 0


@pytest.mark.parametrize(
    ("text", "expected", "found", "remedy"),
    [
        (
            "a: expected at least 9, the least, found 3. Allow it.",
            "a: at least 9, the least",
            "3",
            "Allow it.",
        ),
        ("steps: expected 1 to 4, found 9", "steps: 1 to 4", "9", "Change the request accordingly."),
        ("something broke", "a request that can be served", "something broke", "Change the request."),
    ],
)
def test_errors_of_other_packages_keep_their_texts(text: str, expected: str, found: str, remedy: str) -> None:
    error = refused(ValueError(text))
    assert (error.expected, error.found, error.remedy) == (expected, found, remedy)


def until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
