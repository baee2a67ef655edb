"""What strangers may cost a gateway: passes of its model, frames to others' addresses, money."""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from edge_runtime.errors import LinkError, UsageError
from links import LINK_PROFILES, Datagram, LinkProfile, Tariff
from links.datagram import Link
from links.duty import DAY
from links.exchange import QuestionExchange, RetryBudget
from links.frames.cookie import Challenge, with_cookie
from links.frames.kinds import FrameKind
from links.frames.question import Question, decode_question, encode_question, seal_question
from links.frames.question_text import predictive_body
from links.frames.reply import Refusal, RefusalCode, decode_reply
from links.gateway.answering import Gateway
from links.gateway.limits import LIFE_SECONDS, MAX_KEPT, Allowance, Cookies, FailedFrames, Rate
from links.kinds.udp import UdpLink
from links.quota import Quota
from links.seal import Seal, SealedLink, make_pair
from payload import AnchorSet, Base, Contract, Shared
from payload.errors import FingerprintError
from tests.links.emulation import EmulatedLink, Emulation, emulated_gateway, running
from tests.links.gateway.test_answering import FakeSource
from tests.payload.fake_predictor import HashPredictor
from tests.vectors.toy_vocabulary import ToyTokens, contract

TOY = contract()
TOKENS = ToyTokens()
TEXT = "Who is the mayor?"
FAST = LinkProfile("fast", 1200, 1200, delay=(0.01, 0.05))
PLAIN = Shared(TOY, tokens=TOKENS)


@dataclass
class Passes:
    """Of the fake edge model. seconds: that one takes."""

    count: int = 0
    seconds: float = 0.0


class Sure(HashPredictor):
    """A model that is sure of what follows: its text takes few bytes and as many passes as any other."""

    def __init__(self, passes: Passes) -> None:
        super().__init__(TOY.vocab_size, [5])
        self.counted = passes

    def row(self, before: Sequence[int]) -> np.ndarray:
        self.counted.count += 1
        time.sleep(self.counted.seconds)
        row = np.full(self.vocab_size + 1, -14.0)
        row[97 + len(before) % 26] = -1e-3
        return row


def context(passes: Passes) -> Shared:
    return Shared(TOY, tokens=TOKENS, predictor=Sure(passes))


class Stage(NamedTuple):
    """A gateway that reads with a model on an emulated link, and the passes that it takes."""

    passes: Passes
    emulation: Emulation
    shared: Shared
    gateway: Gateway


def stage(predictive: bool | None = True, seals: Sequence[Seal] = ()) -> Stage:
    passes = Passes()
    emulation, shared = Emulation(FAST), context(passes)
    gateway = emulated_gateway(emulation, shared, FakeSource(), predictive=predictive, seals=seals)
    return Stage(passes, emulation, shared, gateway)


def hostile(number: int, sure: int = 32) -> bytes:
    """A question of 12 or 13 bytes whose check holds, and whose text takes many passes before it does not."""
    model = context(Passes()).predictor
    assert model is not None
    ids = [number % 90, *(97 + position % 26 for position in range(1, sure))]
    body, digest = predictive_body(ids, TOY, model, 0.0)
    wrong = bytes([digest[0] ^ 1])
    asked = Question(number & 0xFFFF, "a")
    return seal_question(asked, FrameKind.QUESTION_PREDICTIVE, Shared(TOY, predictor=model), body, wrong)


def test_a_hostile_frame_is_small_and_takes_many_passes() -> None:
    passes = Passes()
    with pytest.raises(FingerprintError):
        decode_question(hostile(1), context(passes))
    assert (len(hostile(1)), passes.count) == (12, 33)


def ask(
    link: Link, shared: Shared, id: int, codec: str, budget: RetryBudget | None = None
) -> QuestionExchange:
    def read(data: bytes, base: Base | None) -> AnchorSet:
        return AnchorSet.empty(16, TOY)

    frame = encode_question(Question(id, TEXT), shared, codec)
    exchange = QuestionExchange(link, frame, id, read, budget, random.Random(id))
    for _ in exchange.anchors():
        pass
    return exchange


# --- passes of the edge model


def test_a_predictive_question_of_a_stranger_costs_no_pass_and_is_told_to_ask_without() -> None:
    passes, emulation, _, gateway = stage(predictive=None)
    device = emulation.device()
    for number in range(50):
        device.send(hostile(number))
    found = device.receive(5)
    assert found is not None
    assert decode_reply(found.data).code is RefusalCode.OTHER_PREDICTIONS  # type: ignore[union-attr]
    assert device.receive(5) is None, "said once in a while"
    assert (passes.count, gateway.runs, gateway.ignored) == (0, 0, 50)


def test_sealed_questions_are_read_with_the_model(tmp_path: Path) -> None:
    device_seal, gateway_seal = make_pair(tmp_path / "one")
    _, emulation, shared, gateway = stage(None, [Seal(gateway_seal)])
    device = SealedLink(emulation.device(), [Seal(device_seal)])
    assert ask(device, shared, 7, "predictive").complete
    assert gateway.runs == 1


def test_40_hostile_frames_a_second_from_one_peer_leave_the_model_to_the_others() -> None:
    """Ten seconds of them, on a link whose gateway reads anyone's."""
    passes, emulation, shared, gateway = stage()
    attacker = emulation.device("attacker")
    for number in range(400):
        frame = hostile(number)
        emulation.clock.after(number / 40, lambda frame=frame: attacker.send(frame))
    exchanges = [
        ask(emulation.device(f"honest {id}"), shared, id, codec, RetryBudget(attempts=2))
        for id, codec in enumerate(("predictive", "compact", "utf-8", "predictive"))
    ]
    assert all(exchange.complete for exchange in exchanges)
    emulation.clock.wait(20, lambda: False)
    # 512 bytes at once and 16 a second, 8 positions each, and the passes of two honest texts.
    assert passes.count <= (512 + 16 * 10) * 8 + 200
    assert gateway.runs == 4


def test_hostile_frames_from_ever_other_peers_leave_questions_without_the_model() -> None:
    passes, emulation, shared, gateway = stage()
    for number in range(300):
        gateway.receive(Datagram(hostile(number), f"forged {number}"))
        gateway.poll() if not number % 10 else None
    assert gateway.reading.now.total() <= gateway.limits.reading
    assert ask(emulation.device(), shared, 3, "compact").complete
    assert ask(emulation.device("another"), shared, 4, "utf-8").complete
    assert passes.count <= 2048 * 8


def test_a_frame_that_failed_is_not_read_again() -> None:
    passes, emulation, _, gateway = stage()
    frame = hostile(1)
    gateway.receive(Datagram(frame, "device"))
    emulation.device()
    emulation.clock.wait(5, lambda: False)
    once = passes.count
    assert once > 0
    for number in range(20):
        gateway.receive(Datagram(frame, f"forged {number}"))
        emulation.clock.wait(1, lambda: False)
    assert passes.count == once
    assert gateway.ignored == 21


def test_a_fault_of_the_model_is_not_held_against_a_frame() -> None:
    class Broken(Sure):
        broken = True

        def read(self, text: Sequence[int], start: int) -> Iterator[np.ndarray]:
            if self.broken:
                raise MemoryError("no memory")
            return super().read(text, start)

    model = Broken(Passes())
    shared = Shared(TOY, tokens=TOKENS, predictor=model)
    good = context(Passes())
    emulation = Emulation(FAST)
    gateway = emulated_gateway(emulation, shared, FakeSource(), predictive=True)
    device = emulation.device()
    first = ask(device, good, 7, "predictive", RetryBudget(attempts=1))
    assert first.refusal == Refusal(7, RefusalCode.FAILED)
    model.broken = False
    assert ask(device, good, 7, "predictive").complete
    assert gateway.running == 0


def test_honest_questions_are_answered_within_seconds_while_the_model_is_kept_busy() -> None:
    """In real time, with threads as the command has them: a pass of the edge model takes 5 ms."""
    shared = context(Passes(seconds=0.005))
    # The attacker of this test may write any address.
    with udp_gateway(shared, predictive=True, forgeable=False) as link:
        stop = threading.Event()
        host, _, port = link.address.rpartition(":")
        frames = [hostile(number) for number in range(200)]

        def attack() -> None:
            number = 0
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as each:
                while not stop.wait(1 / 40):
                    number += 1
                    each.sendto(frames[number % 200], (host, int(port)))

        thread = threading.Thread(target=attack, daemon=True)
        thread.start()
        time.sleep(1)
        try:
            for codec in ("compact", "predictive"):
                with device_of(link) as device:
                    begin = time.monotonic()
                    assert ask(device, PLAIN if codec == "compact" else shared, 9, codec).complete
                    assert time.monotonic() - begin < 8, "no second attempt was needed, or one"
        finally:
            stop.set()
            thread.join(5)


def start(job: object) -> None:
    threading.Thread(target=job, daemon=True).start()  # type: ignore[arg-type]


@contextmanager
def udp_gateway(shared: Shared = PLAIN, seal: Path | None = None, **options: Any) -> Iterator[UdpLink]:
    """The service's end of a link on this machine, answered from threads, as by the command."""
    profile = options.pop("profile", LINK_PROFILES["udp"])
    with UdpLink("127.0.0.1", 0, service=True, profile=profile) as link:
        link.forgeable = options.pop("forgeable", True)
        sealed = SealedLink(link, [Seal(seal)]) if seal else link
        with running(Gateway(sealed, shared, FakeSource(), start, **options)):
            yield link


def device_of(link: UdpLink) -> UdpLink:
    return UdpLink("127.0.0.1", int(link.address.rpartition(":")[2]))


# --- addresses that anyone can write


def forging(emulation: Emulation) -> EmulatedLink:
    """A device's end of a link on which senders can be forged."""
    emulation.gateway.forgeable = True
    return emulation.device()


def test_nothing_larger_than_the_question_goes_to_an_address_that_has_not_shown_that_it_receives() -> None:
    emulation, source = Emulation(FAST), FakeSource(parts=7)
    device = forging(emulation)
    gateway = emulated_gateway(emulation, PLAIN, source)
    for frame in (
        encode_question(Question(5, "a"), PLAIN),
        encode_question(Question(5, TEXT, room=24), PLAIN),
        encode_question(Question(5, TEXT), Shared(Contract(500, "5" * 64, TOY.special, "1" * 64))),
    ):
        for wrong in (b"", b"wron"):
            device.send(with_cookie(frame, wrong))
            found = device.receive(5)
            assert found is not None
            assert isinstance(decode_reply(found.data), Challenge)
            assert len(found.data) <= len(frame)
            assert device.receive(5) is None, "one frame alone"
    for noise in (b"hello", b"\0\0", b"\x18\0\0\0\0\0\0\0", bytes([5 << 3]) + bytes(6)):
        device.send(noise)
        assert device.receive(5) is None
    assert (source.asked, gateway.runs, gateway.challenged) == ([], 0, 6)


def test_a_device_shows_its_address_and_is_answered() -> None:
    emulation, source = Emulation(FAST), FakeSource(parts=3)
    device = forging(emulation)
    gateway = emulated_gateway(emulation, PLAIN, source)
    exchange = ask(device, PLAIN, 7, "compact")
    assert (exchange.complete, exchange.attempts, gateway.challenged, gateway.runs) == (True, 1, 1, 1)
    assert ask(device, PLAIN, 8, "compact").complete
    assert gateway.challenged == 1, "the next question brings its cookie"


def test_a_cookie_is_one_addresses_for_some_time() -> None:
    cookies = Cookies()
    cookie = cookies.of("192.0.2.1:7", 1000.0)
    assert cookies.shows(cookie, "192.0.2.1:7", 1000.0 + LIFE_SECONDS)
    assert not cookies.shows(cookie, "192.0.2.1:7", 1000.0 + 2 * LIFE_SECONDS)
    assert not cookies.shows(cookie, "192.0.2.1:8", 1000.0)
    assert not cookies.shows(b"", "192.0.2.1:7", 1000.0)
    assert not Cookies().shows(cookie, "192.0.2.1:7", 1000.0)


def test_udp_asks_for_a_cookie_and_a_seal_stands_for_one(tmp_path: Path) -> None:
    with udp_gateway() as link, device_of(link) as device:
        exchange = ask(device, PLAIN, 7, "compact")
        assert (exchange.complete, len(device.cookie), device.sent.frames) == (True, 4, 2)
    device_seal, gateway_seal = make_pair(tmp_path / "one")
    with udp_gateway(seal=gateway_seal) as link, device_of(link) as plain:
        sealed = SealedLink(plain, [Seal(device_seal)])
        assert ask(sealed, PLAIN, 7, "compact").complete
        assert (sealed.cookie, plain.sent.frames) == (b"", 1)


def test_repeats_bring_one_chain_to_a_peer_in_some_seconds() -> None:
    emulation, source = Emulation(FAST), FakeSource(parts=7)
    emulated_gateway(emulation, PLAIN, source)
    device = emulation.device()
    frame = encode_question(Question(5, TEXT), PLAIN)
    device.send(frame)
    while device.receive(5) is not None:
        pass
    sent = emulation.gateway.sent.frames
    assert sent == 7
    for _ in range(60):  # six seconds
        device.send(frame)
        emulation.clock.wait(0.1, lambda: False)
    assert sent < emulation.gateway.sent.frames <= sent + 3 * 7


# --- money


PAID = replace(FAST, name="paid", tariff=Tariff("by frame", "USD", 0.5))


def paid(quota: Quota) -> tuple[Emulation, Gateway]:
    emulation = Emulation(PAID)
    gateway = emulated_gateway(emulation, PLAIN, FakeSource())
    gateway.outbox.quota = quota
    return emulation, gateway


def answered(emulation: Emulation, name: str, count: int) -> int:
    """How many of so many questions of a peer are."""
    device = emulation.end(name) if name in emulation._ends else emulation.device(name)
    budget = RetryBudget(attempts=1)
    return sum(ask(device, PLAIN, 100 + number, "compact", budget).complete for number in range(count))


def test_quotas_of_a_peer_and_of_a_day(tmp_path: Path) -> None:
    now = [DAY * 100.5]
    emulation, gateway = paid(Quota(tmp_path / "state", 1.0, 2.5, lambda: now[0]))
    assert answered(emulation, "one", 3) == 2
    runs = gateway.runs
    assert answered(emulation, "one", 2) == 0
    assert gateway.runs == runs, "the service is not asked for what cannot be sent"
    assert answered(emulation, "two", 3) == 2
    assert answered(emulation, "three", 3) == 1
    now[0] += DAY
    gateway._kept.clear()
    assert answered(emulation, "one", 3) == 2


def test_what_was_spent_outlives_the_process_and_a_clock_that_goes_back(tmp_path: Path) -> None:
    now, file = [DAY * 100.5], tmp_path / "new" / "state"
    quota = Quota(file, 1.0, 2.0, lambda: now[0])
    assert quota.allows("one", 1.0)
    quota.spend("one", 1.0)
    assert not quota.allows("one", 0.5)
    again = Quota(file, 1.0, 2.0, lambda: now[0])  # as another program has it
    assert not again.allows("one", 0.5)
    assert again.allows("two", 0.5)
    now[0] -= 5 * DAY
    assert not again.allows("one", 0.5), "no new day"
    now[0] += DAY
    assert again.allows("one", 1.0), "a wrong clock does not lock it for ever"
    with pytest.raises(UsageError):
        Quota(file, -1.0)
    with pytest.raises(LinkError):
        Quota(file / "below").spend("one", 1.0)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"day": 1, "peers": {"x": [1]}}', '{"day": "x", "peers": {}}']
)
def test_a_file_that_is_none_is_an_error_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(UsageError):
        Quota(tmp_path / "state")


def _spend(file: Path) -> int:
    quota = Quota(file, math.inf, 100.0)
    return sum(quota.spend(str(number % 3), 1.0) for number in range(80))


def test_processes_that_share_a_quota_spend_it_once(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        spent = list(pool.map(_spend, [tmp_path / "state"] * 2))
    assert sum(spent) == 100
    assert sum(json.loads((tmp_path / "state").read_text())["peers"].values()) == 100


def test_a_host_has_one_quota_whatever_its_port(tmp_path: Path) -> None:
    profile = replace(LINK_PROFILES["udp"], tariff=Tariff("by frame", "USD", 0.4))
    budget = RetryBudget(attempts=1, seconds=1)
    with udp_gateway(profile=profile, quota=Quota(tmp_path / "state", 1.0)) as link:
        done = []
        for number in range(2):
            with device_of(link) as device:
                done.append(ask(device, PLAIN, number, "compact", budget).complete)
        assert done == [True, False], "a challenge and an answer, then nothing"
        assert link.sent.money == 0.8


def test_a_link_that_is_free_has_no_quota(tmp_path: Path) -> None:
    emulation = Emulation(LINK_PROFILES["udp"])
    gateway = emulated_gateway(emulation, PLAIN, FakeSource())
    gateway.outbox.quota = Quota(tmp_path / "state", 0.0, 0.0)
    assert answered(emulation, "one", 3) == 3


# --- a flipped bit


@pytest.mark.parametrize("codec", ["compact", "utf-8"])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_in_the_tag_of_a_question_leads_to_a_repeat(codec: str, bit: int) -> None:
    emulation, gateway, damaged = damaging(codec, bit, times=1)
    exchange = ask(emulation.device(), PLAIN, 7, codec)
    assert (exchange.complete, exchange.attempts, exchange.refusal) == (True, 2, None)
    assert (gateway.refused, damaged) == (0, [1])


def test_a_bit_that_is_always_flipped_leads_to_no_answer_and_to_no_refusal() -> None:
    """So the device answers alone, as where nobody is there."""
    emulation, gateway, _ = damaging("compact", 3, times=99)
    exchange = ask(emulation.device(), PLAIN, 7, "compact", RetryBudget(attempts=3))
    assert (exchange.complete, exchange.attempts, exchange.refusal) == (False, 3, None)
    assert gateway.refused == 0


def damaging(codec: str, bit: int, times: int) -> tuple[Emulation, Gateway, list[int]]:
    """A gateway behind a link that flips a bit of the tag of the first frames."""
    emulation, damaged = Emulation(FAST), [0]
    gateway = emulated_gateway(emulation, PLAIN, FakeSource())
    arrived = emulation.gateway._listener
    assert arrived is not None

    def changed(datagram: Datagram) -> None:
        data = bytearray(datagram.data)
        if damaged[0] < times:
            damaged[0] += 1
            data[3] ^= 1 << bit
        arrived(Datagram(bytes(data), datagram.peer))

    emulation.gateway.listen(changed)
    return emulation, gateway, damaged


# --- the parts


def test_an_allowance_is_of_each_peer_and_of_all() -> None:
    allowance = Allowance(Rate(1, 3), Rate(2, 5))
    assert [allowance.take("a", 1, 0.0) for _ in range(4)] == [True, True, True, False]
    assert [allowance.take("b", 1, 0.0) for _ in range(3)] == [True, True, False]
    assert allowance.take("c", 1, 0.5)
    assert not allowance.take("a", 1, 0.5)
    assert allowance.take("a", 1, 1.5)
    assert allowance.take("a", 99, 100.0), "what is larger than the bucket takes a full one"
    assert not allowance.take("a", 1, 100.5)
    for number in range(3 * MAX_KEPT):
        allowance.take(str(number), 1, 1000.0 + number)
    assert len(allowance._peers) == MAX_KEPT


def test_failed_frames_are_few() -> None:
    failed = FailedFrames()
    for number in range(2 * MAX_KEPT):
        failed.add(b"%d" % number, RefusalCode.OTHER_PREDICTIONS)
    assert failed.why(b"0") is None
    assert failed.why(b"%d" % (2 * MAX_KEPT - 1)) is RefusalCode.OTHER_PREDICTIONS
    assert len(failed._codes) == MAX_KEPT
