"""An exchange, the device's side: repeats, parts in any order, frames of others, refusals, budgets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from links import LINK_PROFILES, Duty, LinkProfile
from links.datagram import Datagram
from links.exchange import MAX_CHALLENGES, QuestionExchange, RetryBudget
from links.frames.cookie import COOKIE_BYTES, Challenge, split_cookie
from links.frames.question import Question, encode_question
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, decode_reply, encode_reply
from payload import AnchorSet, Base, Contract, Shared, decode, encode
from payload.errors import FingerprintError
from tests.links.emulation import Emulation

CONTRACT = Contract(500, "0" * 64, {"<|endoftext|>": 500, "<|im_start|>": 501, "<|im_end|>": 502}, "1" * 64)
PROMPT = [3, 1, 4, 1, 5]
ID = 77
QUESTION = encode_question(Question(ID, "Who leads Anna's town?"), Shared(CONTRACT))
FAST = LinkProfile("fast", 200, 200, delay=(0.05, 0.2))


def chain(*sets: dict[int, int], prompt: list[int] = PROMPT) -> list[bytes]:
    """Payloads of these anchors, each but the first a delta to the one before."""
    found: list[bytes] = []
    base: Base | None = None
    for tokens in sets:
        anchors = AnchorSet.of(tokens, 64, CONTRACT, 20)
        found.append(encode(anchors, Shared(CONTRACT, prompt, base=base)))
        base = Base(found[-1], anchors)
    return found


def frames(payloads: list[bytes], id: int = ID) -> list[bytes]:
    last = len(payloads) - 1
    return [encode_reply(AnswerFrame(id, part, part == last, data)) for part, data in enumerate(payloads)]


SETS = ({2: 7}, {2: 7, 5: 9, 11: 44}, {0: 1, 2: 7, 5: 9, 11: 44})
ANSWER = frames(chain(*SETS))


def read(data: bytes, base: Base | None) -> AnchorSet:
    return decode(data, Shared(CONTRACT, PROMPT, base=base))


class Exchanged(NamedTuple):
    """An exchange that has ended, the anchors that came, and when the gateway was asked."""

    exchange: QuestionExchange
    found: list[dict[int, int]]
    times: list[float]


def exchanged(
    emulation: Emulation,
    answers: Callable[[int], Iterable[bytes]],
    budget: RetryBudget | None = None,
    reader: Callable[[bytes, Base | None], AnchorSet] = read,
) -> Exchanged:
    """answers: the frames that come back when the gateway is asked for the nth time, from 1."""
    gateway, times = emulation.gateway, list[float]()

    def answer(datagram: Datagram) -> None:
        times.append(emulation.clock.now)
        for frame in answers(len(times)):
            gateway.send(frame, datagram.peer)

    gateway.listen(answer)
    exchange = QuestionExchange(emulation.device(), QUESTION, ID, reader, budget, random.Random(1))
    return Exchanged(exchange, [anchors.by_position for anchors in exchange.anchors()], times)


def test_the_parts_come_one_by_one_and_the_first_at_once() -> None:
    exchange, found, _ = exchanged(Emulation(FAST), lambda _: ANSWER)
    assert found == list(SETS)
    assert (exchange.complete, exchange.attempts, exchange.ignored) == (True, 1, 0)
    assert exchange.accepted == [len(data) for data in chain(*SETS)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.3), st.floats(0, 0.5), st.floats(0, 0.5))
def test_loss_duplicates_and_reordering_change_nothing(
    seed: int, loss: float, duplicates: float, reordering: float
) -> None:
    emulation = Emulation(FAST, loss=loss, duplicates=duplicates, reordering=reordering, seed=seed)
    exchange, found, _ = exchanged(emulation, lambda _: ANSWER, RetryBudget(attempts=30))
    assert exchange.complete
    assert found == list(SETS)
    assert exchange.ignored == 0


@settings(max_examples=60, deadline=None)
@given(st.permutations(ANSWER * 2))
def test_parts_in_any_order(order: list[bytes]) -> None:
    exchange, found, _ = exchanged(Emulation(FAST), lambda _: order)
    assert found == list(SETS)
    assert exchange.complete


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_damaged_frame_is_not_taken_for_the_answer(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(ANSWER)))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    _, found, _ = exchanged(Emulation(FAST), lambda _: [bytes(damaged), *ANSWER])
    assert found == list(SETS)


def test_an_answer_to_another_question_is_none() -> None:
    other_id = frames(chain({1: 2}), ID + 1)
    other_prompt = frames(chain({1: 2}, prompt=[9, 9]))
    exchange, found, _ = exchanged(Emulation(FAST), lambda _: [*other_id, *other_prompt, b"noise"])
    assert not found
    assert not exchange.complete
    assert exchange.attempts == exchange.budget.attempts
    _, found, _ = exchanged(Emulation(FAST), lambda _: [*other_id, *other_prompt, *ANSWER])
    assert found == list(SETS)


def test_strangers_cannot_fill_the_place_of_a_part_that_has_not_come() -> None:
    noise = [encode_reply(AnswerFrame(ID, 2, False, bytes([64, 1, 2, 3, n]))) for n in range(100)]
    exchange, found, _ = exchanged(Emulation(FAST), lambda _: [*noise, *ANSWER])
    assert found == list(SETS)  # asked again, without the noise's places
    assert exchange.complete


def test_pauses_grow_and_end_with_the_budget() -> None:
    emulation = Emulation(FAST)
    exchange, found, times = exchanged(emulation, lambda _: [], RetryBudget(attempts=6))
    assert (found, exchange.attempts, len(times)) == ([], 6, 6)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[-1] > 3 * pauses[0]
    assert emulation.clock.now - times[-1] > pauses[-1]  # the last attempt is waited for as well


def test_the_airtime_is_a_budget() -> None:
    profile = LINK_PROFILES["lorawan-sf10"]
    each = profile.cost(len(QUESTION)).airtime
    exchange, *_ = exchanged(Emulation(profile), lambda _: [], RetryBudget(attempts=99, airtime=3.5 * each))
    assert exchange.attempts == 3
    assert exchange.airtime == pytest.approx(3 * each)
    emulation = Emulation(profile)
    exchange, *_ = exchanged(emulation, lambda _: [], RetryBudget(attempts=99, seconds=30))
    assert emulation.clock.now == pytest.approx(30, abs=0.01)


def test_a_duty_delays_a_repeat() -> None:
    emulation = Emulation(replace(FAST, duties=(Duty(3600, frames=2),)))
    times = exchanged(emulation, lambda _: [], RetryBudget(attempts=3)).times
    assert times[2] - times[0] == pytest.approx(3600, abs=1)


def test_where_every_frame_has_to_be_asked_for_a_chain_comes_one_by_one() -> None:
    profile = LINK_PROFILES["lorawan-sf10"]
    exchange, found, _ = exchanged(Emulation(profile), lambda number: [ANSWER[(number - 1) % 3]])
    assert (exchange.complete, exchange.attempts, found) == (True, 3, list(SETS))


def busy_once(seconds: int) -> Callable[[int], Iterable[bytes]]:
    """A service that first says that it is busy, and for how long; then it answers."""
    busy = encode_reply(Refusal(ID, RefusalCode.OVERLOADED, seconds))
    return lambda number: [busy] if number == 1 else ANSWER


def test_a_refusal_ends_it_and_a_busy_service_is_asked_later() -> None:
    no = encode_reply(Refusal(ID, RefusalCode.TOO_LONG))
    exchange, found, _ = exchanged(Emulation(FAST), lambda _: [no])
    assert (found, exchange.attempts, exchange.refusal) == ([], 1, decode_reply(no))
    exchange, _, times = exchanged(Emulation(FAST), busy_once(60))
    assert exchange.complete
    assert 60 <= times[1] - times[0] <= 80


def test_a_refusal_after_a_part_is_not_believed() -> None:
    no = encode_reply(Refusal(ID, RefusalCode.FAILED))
    in_order = replace(FAST, delay=(0.1, 0.1))
    exchange, *_ = exchanged(Emulation(in_order), lambda _: [ANSWER[0], no, *ANSWER[1:]])
    assert exchange.complete
    assert exchange.refusal is None


OTHER = encode_reply(Refusal(ID, RefusalCode.OTHER_CONTRACT, identity="0" * 8))


def test_a_refusal_that_nobody_authenticated_does_not_end_it_before_an_answer_could_have_come() -> None:
    """A forged refusal is sooner than the answer."""
    emulation = Emulation(FAST)

    def answers(_: int) -> list[bytes]:
        for frame in ANSWER:
            emulation.clock.after(3, lambda frame=frame: emulation.gateway.send(frame, "device"))
        return [OTHER]

    exchange, found, _ = exchanged(emulation, answers)
    assert found == list(SETS)
    assert (exchange.complete, exchange.refusal, exchange.attempts) == (True, None, 1)


def test_a_refusal_that_stands_ends_it_after_the_first_pause() -> None:
    emulation = Emulation(FAST)
    exchange, *_ = exchanged(emulation, lambda _: [OTHER])
    assert (exchange.refusal, exchange.attempts) == (decode_reply(OTHER), 1)
    assert emulation.clock.now >= exchange.first_pause * 0.75
    emulation = Emulation(FAST)
    emulation.gateway.listen(lambda datagram: emulation.gateway.send(OTHER, datagram.peer))
    device = emulation.device()
    device.authenticated = True  # as under a seal
    exchange = QuestionExchange(device, QUESTION, ID, read)
    assert not list(exchange.anchors())
    assert exchange.refusal == decode_reply(OTHER)
    assert emulation.clock.now < 1


@pytest.mark.parametrize("seconds", [30.0, None])
def test_retry_after_never_exceeds_what_is_left_of_the_budget(seconds: float | None) -> None:
    """A week, as anyone may say; then the service answers."""
    exchange, _, times = exchanged(Emulation(FAST), busy_once(604_800), RetryBudget(seconds=seconds))
    assert exchange.complete
    assert 10 < times[1] < (seconds or 150)


def test_refusals_again_and_again_cannot_keep_it_from_ending() -> None:
    emulation = Emulation(FAST)
    busy = encode_reply(Refusal(ID, RefusalCode.OVERLOADED, 604_800))
    exchange, *_ = exchanged(emulation, lambda _: [busy], RetryBudget(seconds=100.0))
    assert emulation.clock.now == pytest.approx(100, abs=1)
    assert exchange.attempts > 1


def test_a_question_is_sent_again_with_the_cookie_of_a_challenge_and_keeps_it() -> None:
    asked: list[bytes] = []
    emulation = Emulation(FAST)

    def demanding(datagram: Datagram) -> None:
        asked.append(datagram.data)
        frame, cookie = split_cookie(datagram.data)
        assert frame == QUESTION
        for reply in ANSWER if cookie == b"good" else [encode_reply(Challenge(ID, b"good"))]:
            emulation.gateway.send(reply, datagram.peer)

    emulation.gateway.listen(demanding)
    device = emulation.device()
    exchange = QuestionExchange(device, QUESTION, ID, read, RetryBudget(attempts=1))
    assert list(exchange.anchors())
    assert (exchange.complete, exchange.attempts, len(asked)) == (True, 1, 2)
    assert emulation.clock.now < 2, "a challenge is answered at once"
    assert list(QuestionExchange(device, QUESTION, ID, read).anchors())
    assert len(asked) == 3, "the address is known: the cookie goes with the next question"


def test_strangers_challenges_are_few_and_do_not_end_it() -> None:
    def noisy(number: int) -> list[bytes]:
        return [encode_reply(Challenge(ID, number.to_bytes(4, "big")))] * 2 + (ANSWER if number > 6 else [])

    exchange, _, times = exchanged(Emulation(FAST), noisy, RetryBudget(attempts=5))
    assert (exchange.complete, len(times), exchange.attempts) == (True, 7, 7 - MAX_CHALLENGES)


def test_a_cookie_needs_room() -> None:
    tight = replace(FAST, up=len(QUESTION) + COOKIE_BYTES)
    exchange, *_ = exchanged(Emulation(tight), lambda _: [encode_reply(Challenge(ID, b"good"))])
    assert exchange.refusal == Refusal(ID, RefusalCode.TOO_LONG)


def test_frames_that_this_ends_profile_does_not_have_are_noticed() -> None:
    """The gateway's end was opened with another profile."""
    emulation = Emulation(FAST)
    gateway, device = emulation.gateway, emulation.device()
    device.profile = replace(FAST, name="narrow", down=30)
    gateway.listen(lambda datagram: gateway.send(bytes(77), datagram.peer))
    exchange = QuestionExchange(device, QUESTION, ID, read)
    assert not list(exchange.anchors())
    assert (exchange.oversized, exchange.attempts) == (77, 1)


def test_predictions_that_differ_show_when_the_same_bytes_fail_twice() -> None:
    def unreadable(data: bytes, base: Base | None) -> AnchorSet:
        raise FingerprintError("other numbers")

    exchange, found, _ = exchanged(Emulation(FAST), lambda _: ANSWER, reader=unreadable)
    assert (found, exchange.strange, exchange.attempts) == ([], True, 2)
