"""A gateway's state: one run a question, what is kept, chains, refusals, duties, and what it ignores."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.client.client import ReceivedPayload
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError
from links import LINK_PROFILES, Datagram, Duty, LinkProfile
from links.exchange import QuestionExchange, RetryBudget
from links.frames.kinds import MAX_PARTS
from links.frames.question import Question, encode_question
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, decode_reply, encode_reply
from links.gateway.answering import GatewayLimits
from links.gateway.refusals import refusal_of
from payload import AnchorSet, Base, Contract, Shared, decode, encode
from payload.errors import FingerprintError, MalformedPayloadError, OversizedPayloadError
from tests.links.emulation import EmulatedLink, Emulation, emulated_gateway

CONTRACT = Contract(500, "0" * 64, {"<|endoftext|>": 500, "<|im_start|>": 501, "<|im_end|>": 502}, "1" * 64)
OTHER = Contract(500, "5" * 64, {"<|endoftext|>": 500, "<|im_start|>": 501, "<|im_end|>": 502}, "1" * 64)
SHARED = Shared(CONTRACT)
FAST = LinkProfile("fast", 200, 200, delay=(0.05, 0.2))


def prompt_ids(text: str) -> list[int]:
    return [ord(character) % 500 for character in text]


@dataclass
class FakeSource:
    """Anchors that say which question they answer, one to a payload; or an error."""

    parts: int = 1
    error: Exception | None = None
    breaks_after: int | None = None
    asked: list[tuple[Question, int]] = field(default_factory=list)

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        self.asked.append((question, room))
        base: Base | None = None
        for part in range(self.parts):
            if part == self.breaks_after or self.error is not None:
                raise self.error or CloudUnavailableError("broken")
            anchors = anchors_for(question.text, part + 1)
            data = encode(anchors, Shared(CONTRACT, prompt_ids(question.text), base=base))
            base = Base(data, anchors)
            yield ReceivedPayload(data, part > 0, part == self.parts - 1)


def anchors_for(text: str, count: int) -> AnchorSet:
    ids = prompt_ids(text)
    return AnchorSet.of({2 * n: ids[n % len(ids)] for n in range(count)}, 256, CONTRACT, 250)


def ask(
    device: EmulatedLink, text: str, id: int = 5, budget: RetryBudget | None = None
) -> tuple[QuestionExchange, list[AnchorSet]]:
    def read(data: bytes, base: Base | None) -> AnchorSet:
        return decode(data, Shared(CONTRACT, prompt_ids(text), base=base))

    frame = encode_question(Question(id, text), SHARED)
    exchange = QuestionExchange(device, frame, id, read, budget, random.Random(id))
    return exchange, list(exchange.anchors())


def test_a_question_is_answered_from_one_run() -> None:
    source, emulation = FakeSource(parts=3), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source)
    exchange, found = ask(emulation.device(), "Who leads Anna?")
    assert found == [anchors_for("Who leads Anna?", count) for count in (1, 2, 3)]
    assert (exchange.complete, exchange.attempts, gateway.runs) == (True, 1, 1)
    ((question, room),) = source.asked
    assert question.text == "Who leads Anna?"
    assert room == 200 - 4  # a head of three bytes, and a part's number


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0, 0.3),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.integers(1, 3),
    st.sampled_from(["meshtastic-longfast", "sms", "sbd", "udp"]),
)
def test_every_question_gets_its_own_answer_and_one_run_whatever_the_link_does(
    seed: int, loss: float, duplicates: float, reordering: float, parts: int, name: str
) -> None:
    source = FakeSource(parts)
    emulation = Emulation(
        LINK_PROFILES[name], loss=loss, duplicates=duplicates, reordering=reordering, seed=seed
    )
    gateway = emulated_gateway(emulation, SHARED, source, limits=GatewayLimits(seconds=1e9))
    for number, text in enumerate(("Who leads Anna?", "Where does the river end?")):
        exchange, found = ask(emulation.device(str(number)), text, number, RetryBudget(attempts=40))
        assert exchange.complete
        assert found[-1] == anchors_for(text, parts)
    assert gateway.runs == len(source.asked) == 2


def test_a_repeat_is_the_kept_answer_and_the_same_id_with_another_text_is_not() -> None:
    source, emulation = FakeSource(), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source)
    device = emulation.device()
    _, first = ask(device, "Who leads Anna?")
    _, again = ask(device, "Who leads Anna?")
    assert (first, gateway.runs, gateway.repeats) == (again, 1, 1)
    _, other = ask(device, "Who leads Bert?")
    assert other == [anchors_for("Who leads Bert?", 1)]
    assert gateway.runs == 2
    _, elsewhere = ask(emulation.device("another"), "Who leads Anna?")
    assert elsewhere == first
    assert gateway.runs == 3  # another peer's question is its own


def test_repeats_while_the_service_works_wait_for_the_one_run() -> None:
    source, emulation = FakeSource(), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source, seconds=50)
    exchange, found = ask(emulation.device(), "?", budget=RetryBudget(attempts=40, growth=1.0))
    assert found
    assert exchange.attempts > 5
    assert (gateway.runs, emulation.gateway.sent.frames) == (1, 1)


def test_memory_is_bounded() -> None:
    source, emulation = FakeSource(), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source, limits=GatewayLimits(kept=8))
    device = emulation.device()
    for number in range(40):
        ask(device, f"question {number}", number)
    assert len(gateway._kept) <= 8
    assert (gateway.runs, gateway.running, len(gateway.outbox)) == (40, 0, 0)


def test_one_peer_does_not_take_every_place() -> None:
    source, emulation = FakeSource(), Emulation(FAST)
    emulated_gateway(emulation, SHARED, source, seconds=5, limits=GatewayLimits(running_of_peer=2))
    device = emulation.device()
    for number in range(4):
        device.send(encode_question(Question(number, "?"), SHARED))
    replies = [decode_reply(device.receive(60).data) for _ in range(4)]  # type: ignore[union-attr]
    refused = [reply for reply in replies if isinstance(reply, Refusal)]
    assert len(refused) == 2
    assert {(reply.code, reply.retry_after) for reply in refused} == {(RefusalCode.OVERLOADED, 30)}
    assert ask(emulation.device("another"), "?")[1]


def test_where_every_frame_has_to_be_asked_for_a_question_brings_the_next_part() -> None:
    source, emulation = FakeSource(parts=3), Emulation(LINK_PROFILES["lorawan-sf10"])
    gateway = emulated_gateway(emulation, SHARED, source)
    exchange, found = ask(emulation.device(), "Who?", budget=RetryBudget(attempts=5))
    assert exchange.complete
    assert [len(anchors) for anchors in found] == [1, 2, 3]
    assert (exchange.attempts, emulation.gateway.sent.frames, gateway.runs) == (3, 3, 1)


def test_a_duty_holds_frames_back_and_one_peers_does_not_hold_anothers() -> None:
    source = FakeSource(parts=3)
    emulation = Emulation(replace(FAST, duties=(Duty(100, frames=2, down=True),)))
    emulated_gateway(emulation, SHARED, source)
    exchange, found = ask(emulation.device(), "Who?", budget=RetryBudget(attempts=60, growth=1.0))
    assert exchange.complete
    assert emulation.clock.now > 100
    assert len(found) == 3


CASES = [
    (CloudUnavailableError("x", "overloaded", 7.2), RefusalCode.OVERLOADED, 7),
    (CloudUnavailableError("x", "deadline_exceeded"), RefusalCode.OVERLOADED, 30),
    (CloudUnavailableError("x"), RefusalCode.FAILED, None),
    (CloudRefusedError("x", "prompt_too_long"), RefusalCode.TOO_LONG, None),
    (CloudRefusedError("x", "invalid_request"), RefusalCode.TOO_LONG, None),
    (CloudRefusedError("x", "unauthorized"), RefusalCode.FAILED, None),
    (FingerprintError("x"), RefusalCode.OTHER_PREDICTIONS, None),
    (MalformedPayloadError("x"), RefusalCode.NOT_UNDERSTOOD, None),
    (OversizedPayloadError("x"), RefusalCode.TOO_LONG, None),
    (ZeroDivisionError("x"), RefusalCode.FAILED, None),
]


@pytest.mark.parametrize(("error", "code", "retry"), CASES)
def test_every_error_is_a_refusal(error: Exception, code: RefusalCode, retry: int | None) -> None:
    assert refusal_of(error, 9, CONTRACT.identity) == Refusal(9, code, retry)


def test_a_failing_service_is_a_refusal_and_asked_again_by_a_repeat() -> None:
    source, emulation = FakeSource(error=RuntimeError("a fault")), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source)
    device = emulation.device()
    exchange, _ = ask(device, "Who?")
    assert exchange.refusal == Refusal(5, RefusalCode.FAILED)
    source.error = None
    assert ask(device, "Who?")[1]
    assert (gateway.runs, gateway.running) == (2, 0)
    source.error = CloudRefusedError("x", "prompt_too_long")
    for _ in range(2):
        assert ask(device, "How?")[0].refusal == Refusal(5, RefusalCode.TOO_LONG)
    assert gateway.runs == 3  # that will not change: kept


def test_a_chain_that_breaks_off_leaves_what_came() -> None:
    source, emulation = FakeSource(parts=3, breaks_after=2), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source)
    exchange, found = ask(emulation.device(), "Who?")
    assert [len(anchors) for anchors in found] == [1, 2]
    assert (exchange.complete, exchange.refusal, gateway.running) == (False, None, 0)


def test_frames_that_cannot_be_read_are_ignored_or_refused_once() -> None:
    source, emulation = FakeSource(), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source)
    device = emulation.device()
    good = encode_question(Question(5, "Who?"), SHARED)
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    for noise in (b"hello mesh", damaged, b"\0", encode_answer()):
        device.send(noise)
    assert device.receive(60) is None
    other = encode_question(Question(6, "Who?"), Shared(OTHER))
    for _ in range(3):
        device.send(other)
    found = device.receive(20)
    assert found is not None
    assert decode_reply(found.data) == Refusal(6, RefusalCode.OTHER_CONTRACT, identity=CONTRACT.identity[:8])
    assert device.receive(20) is None
    assert (gateway.runs, gateway.refused) == (0, 1)


QUESTION = encode_question(Question(5, "Where does the river end?", fraction=0.5, room=60), SHARED)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.integers(0, 8 * len(QUESTION) - 1), st.integers(-60, -1)))
def test_hostile_frames_do_not_reach_the_service(change: bytes | int) -> None:
    if isinstance(change, bytes):
        frame = change
    elif change < 0:
        frame = QUESTION[:change]
    else:
        frame = bytearray(QUESTION)
        frame[change // 8] ^= 1 << change % 8
    source, emulation = FakeSource(), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source)
    gateway.receive(Datagram(bytes(frame), "device"))
    assert (gateway.runs, source.asked, gateway.ignored) == (0, [], 1)
    assert gateway.refused <= 1


def encode_answer() -> bytes:
    return encode_reply(AnswerFrame(5, 0, True, encode(anchors_for("x", 1), Shared(CONTRACT))))


def test_an_answer_needs_room() -> None:
    source, emulation = FakeSource(), Emulation(FAST)
    emulated_gateway(emulation, SHARED, source)
    device = emulation.device()
    device.send(encode_question(Question(5, "Who?", room=20), SHARED))
    found = device.receive(60)
    assert found is not None
    assert decode_reply(found.data) == Refusal(5, RefusalCode.TOO_LONG)
    device.send(encode_question(Question(5, "Who?", room=40, steps=3), SHARED))
    assert device.receive(60)
    ((question, room),) = source.asked
    assert (room, question.steps) == (40, 3)


def test_a_chain_longer_than_frames_can_count_ends() -> None:
    source, emulation = FakeSource(parts=90), Emulation(FAST)
    gateway = emulated_gateway(emulation, SHARED, source)
    device = emulation.device()
    device.send(encode_question(Question(5, "Who?"), SHARED))
    found = []
    while datagram := device.receive(60):
        found.append(decode_reply(datagram.data))
    parts = sorted((reply.part, reply.last) for reply in found if isinstance(reply, AnswerFrame))
    assert parts == [(part, part == MAX_PARTS - 1) for part in range(MAX_PARTS)]
    assert gateway.running == 0
