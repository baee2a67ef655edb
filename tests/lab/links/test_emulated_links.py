"""Emulated networks: sizes of headers against real ones, and times and losses against sums by hand."""

from __future__ import annotations

import http.client
import random
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.links import framing
from lab.links.conversation import (
    CLOUD,
    DEVICE,
    EVENTS,
    PART,
    REQUEST,
    RESPONSE,
    Outcome,
    Program,
    Receive,
    Send,
    Speeds,
    Work,
    Write,
    action_json,
    action_of,
    converse,
)
from lab.links.framing import HTTPS, MESSAGE, Framing
from lab.links.link import LINKS
from lab.links.networks import NETWORKS, TCP_RECOVERY, Network, Recovery
from lab.links.transport import Connection, RetransmissionTimer
from links.clock import EventClock

SPEEDS = Speeds(cloud=0.04, edge=0.02, device=0.01, token=0.001)
PLAIN = Framing("plain", packet=40, ack=40)
"""Headers and acknowledgements of 40 bytes, nothing around a message."""
PATIENT = replace(TCP_RECOVERY, timeout=100.0)
SLOW = Network("slow", PLAIN, PATIENT, 8000.0, 8000.0, 0.5, (960, 960))
"""A packet of 960 + 40 bytes takes 1 s to send and 0.5 s to arrive."""
FAST = replace(SLOW, recovery=TCP_RECOVERY, up=8e6, down=8e6, delay=0.1)
"""The same takes 1 ms and 100 ms."""


class Scripted(random.Random):
    """Losses by order: 1 where the next packet is lost; later ones arrive."""

    def __init__(self, losses: str) -> None:
        super().__init__()
        self.losses = list(losses)

    def random(self) -> float:
        return 0.0 if self.losses and self.losses.pop(0) == "1" else 1.0


def arrivals(
    network: Network, sizes: list[int], up: str = "", back: str = ""
) -> tuple[list[float], Connection, EventClock]:
    """Times at which messages from the device arrive; up, back: losses of packets and acknowledgements."""
    clock = EventClock()
    connection = Connection(clock, network, 0.5, "seed")
    connection.to_cloud._rng, connection.to_device._rng = Scripted(up), Scripted(back)
    times: list[float] = []
    connection.up.deliver = lambda number: times.append(clock.now)
    for size in sizes:
        connection.up.send(size)
    clock.run(10_000.0)
    return times, connection, clock


# Sizes.


def test_a_request_is_what_the_clients_library_sends() -> None:
    sent = bytearray()

    class Wire:
        def sendall(self, data: bytes) -> None:
            sent.extend(data)

    connection = http.client.HTTPConnection(framing.HOST)
    connection.sock = Wire()  # type: ignore[assignment]
    headers = {
        "Accept": "application/octet-stream",
        "Content-Type": "application/json",
        "User-Agent": "edge-runtime",
        "Connection": "close",
    }
    connection.request("POST", "/v1/anchors", b'{"prompt": "x"}', headers)
    assert framing.http_request(15, "application/octet-stream") == len(sent)


def test_chunks() -> None:
    assert framing.chunk(0) == len(b"0\r\n\r\n")
    assert framing.chunk(26) == len(b"1a\r\n" + bytes(26) + b"\r\n")
    response = framing.http_response(None, EVENTS) - framing.http_response(0, EVENTS)
    assert response == len("Transfer-Encoding: chunked") - len("Content-Length: 0")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes its certificate with the command openssl, which is not there")
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x".split()
    subprocess.run([openssl, *command, "-keyout", key, "-out", chain], check=True, capture_output=True)
    return key, chain


def test_tls_against_openssl(certificate: tuple[Path, Path]) -> None:
    """Every flight of a real handshake. OpenSSL prefers a cipher with SHA-384, whose hashes are longer."""
    key, chain = certificate
    size = len(ssl.PEM_cert_to_DER_cert(chain.read_text()))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])
    pipes = [ssl.MemoryBIO() for _ in range(4)]
    near = client.wrap_bio(pipes[0], pipes[1], server_hostname=framing.HOST)
    far = server.wrap_bio(pipes[2], pipes[3], server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        near.do_handshake()
    hello = pipes[1].read()
    pipes[2].write(hello)
    with pytest.raises(ssl.SSLWantReadError):
        far.do_handshake()
    flight = pipes[3].read()
    pipes[0].write(flight)
    near.do_handshake()
    finished = pipes[1].read()
    assert near.version() == "TLSv1.3"
    cipher = near.cipher()
    assert cipher is not None
    wider = 16 if "SHA384" in cipher[0] else 0
    assert len(finished) == framing.client_finished() + wider
    share = len(flight) - framing.server_flight(size, chain=1) - wider
    if len(hello) > 1000:
        pytest.skip("this OpenSSL sends a post-quantum key share")
    assert -1 <= share <= 1, "the signature has 70 to 72 bytes"
    assert len(hello) == framing.CLIENT_HELLO
    pipes[2].write(finished)
    far.do_handshake()
    pipes[3].read()
    far.write(bytes(100))
    assert len(pipes[3].read()) == framing.tls_records(100) == 122


def test_records_hold_16_kilobytes() -> None:
    assert framing.tls_records(0) == 22
    assert framing.tls_records(1 << 14) == (1 << 14) + 22
    assert framing.tls_records((1 << 14) + 1) == (1 << 14) + 1 + 44


def test_headers_by_their_fields() -> None:
    assert HTTPS.packet == HTTPS.ack == 20 + 20 + 12
    assert HTTPS.handshake[:2] == (8, 8), "a SYN has 40 bytes of TCP"
    coap = NETWORKS["NB-IoT NTN"].framing
    assert coap.packet == 20 + 8 + 13
    assert coap.ack == coap.packet + 4, "an empty message"
    assert coap.request(10, EVENTS) == 10 + 4 + 2 + 2 + 1
    assert coap.response(10, EVENTS) == 10 + 4 + 2 + 1
    assert MESSAGE.request(10, EVENTS) == MESSAGE.response(10, EVENTS) == 10
    parts = [HTTPS.stream_part(9, EVENTS, first=n == 0, last=n == 2) for n in range(3)]
    assert parts[1] == 9 + len("9\r\n\r\n") + 22
    assert parts[0] - parts[1] == framing.http_response(None, EVENTS)
    assert parts[2] - parts[1] == len("0\r\n\r\n")


def test_the_links_that_both_simulations_have_are_the_same() -> None:
    for name, link in LINKS.items():
        assert (NETWORKS[name].down, NETWORKS[name].delay) == (link.rate, link.delay)


# Packets.


def test_a_packet_takes_its_time_and_its_delay() -> None:
    times, connection, _ = arrivals(SLOW, [960])
    assert times == [1.5]
    assert (connection.to_cloud.sent, connection.to_device.sent) == (1000, 40)


def test_messages_queue_and_are_split() -> None:
    times, connection, _ = arrivals(SLOW, [960, 1920, 1])
    assert times == pytest.approx([1.5, 3.5, 3.5 + 41 * 8 / 8000])
    assert connection.to_cloud.packets == 4


def test_a_small_packet_counts_as_the_least() -> None:
    _, connection, _ = arrivals(replace(SLOW, least=500), [10])
    assert (connection.to_cloud.sent, connection.to_device.sent) == (500, 500)


def test_a_duty_of_a_half_doubles_the_queue() -> None:
    times, _, _ = arrivals(replace(SLOW, duty=0.5), [960, 960, 960])
    assert times == [1.5, 3.5, 5.5]


def test_a_lost_packet_is_sent_again_after_the_first_timeout() -> None:
    times, connection, _ = arrivals(FAST, [960], up="1")
    assert times == pytest.approx([1.0 + 0.001 + 0.1])
    assert connection.to_cloud.packets == 2


def test_the_timeout_doubles() -> None:
    times, _, _ = arrivals(FAST, [960], up="111")
    assert times == pytest.approx([1 + 2 + 4 + 0.101])


def test_a_lost_acknowledgement_costs_bytes_and_no_time() -> None:
    times, connection, _ = arrivals(FAST, [960], back="1")
    assert times == pytest.approx([0.101])
    assert (connection.to_cloud.packets, connection.to_device.packets) == (2, 2)


def test_three_later_packets_tell_of_a_lost_one() -> None:
    times, connection, _ = arrivals(FAST, [960] * 5, up="1")
    # The fourth packet arrives after 0.104 s; its acknowledgement waits 1 ms for a message, and takes 40 us.
    told = 0.104 + 0.1 + 0.001 + 0.00004
    assert times == pytest.approx([told + 0.101] * 5, abs=2e-3)
    assert connection.to_cloud.packets == 6


def test_the_window_begins_at_ten_and_grows() -> None:
    times, _, _ = arrivals(replace(FAST, up=8e9, down=8e9), [960] * 35)
    waves = [round(time, 1) for time in times]
    assert [waves.count(wave) for wave in (0.1, 0.3, 0.5)] == [10, 20, 5]


def test_a_timeout_shorter_than_a_round_trip_sends_twice_for_nothing() -> None:
    times, connection, _ = arrivals(replace(SLOW, recovery=TCP_RECOVERY), [960])
    assert (times, connection.to_cloud.packets) == ([1.5], 2)


def test_stop_and_wait() -> None:
    one = Recovery(1, False, 30.0, 30.0, 240.0, False, False, 5, 0.0)
    times, _, _ = arrivals(replace(SLOW, recovery=one), [960, 960], up="01")
    # Sent, arrived after 1.5 s, acknowledged after 0.04 + 0.5 more; the second is lost once.
    assert times == pytest.approx([1.5, 2.04 + 30 + 1.5])


def test_a_packet_is_given_up() -> None:
    one = Recovery(1, False, 1.0, 1.0, 60.0, False, False, 3, 0.0)
    times, connection, _ = arrivals(replace(SLOW, recovery=one), [960], up="1" * 9)
    assert (times, connection.to_cloud.packets) == ([], 3)


def test_a_network_that_reports_losses_needs_no_acknowledgements() -> None:
    sbd = NETWORKS["SBD"]
    times, connection, _ = arrivals(sbd, [300, 400], up="1")
    air, part, rest = (size * 8 / 2400 for size in (300, 340, 60))
    assert times == pytest.approx([2 * (air + 20), 2 * (air + 20) + part + 20 + rest + 20])
    assert connection.to_device.sent == 0


def test_the_timer_of_rfc_6298() -> None:
    timer = RetransmissionTimer(TCP_RECOVERY)
    assert timer.seconds == 1.0
    timer.measured(0.5)
    assert timer.seconds == pytest.approx(0.5 + 4 * 0.25)
    timer.measured(0.7)
    variation, smooth = 0.75 * 0.25 + 0.25 * 0.2, 0.875 * 0.5 + 0.125 * 0.7
    assert timer.seconds == pytest.approx(smooth + 4 * variation)
    timer.expired()
    assert timer.seconds == pytest.approx(2 * (smooth + 4 * variation))
    timer = RetransmissionTimer(TCP_RECOVERY)
    timer.measured(0.001)
    assert timer.seconds == 0.2


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=12),
    st.integers(0, 999),
    st.sampled_from(sorted(NETWORKS)),
)
def test_messages_arrive_once_and_in_order(sizes: list[int], seed: int, name: str) -> None:
    """With unlimited tries everything arrives, however much is lost."""
    network = replace(NETWORKS[name], recovery=replace(NETWORKS[name].recovery, tries=1000, most=100.0))
    clock = EventClock()
    connection = Connection(clock, network, 0.3, str(seed))
    numbers: list[int] = []
    connection.up.deliver = numbers.append
    for size in sizes:
        connection.up.send(size)
    clock.run(1e7)
    assert numbers == list(range(len(sizes)))
    assert connection.to_cloud.sent >= sum(sizes)


# Conversations.

ASK: Program = [Send(100, REQUEST), Receive(), Write((1, 2), (0, 0))]
REPLY: Program = [Receive(), Work(CLOUD, 2), Send(50, RESPONSE)]


def test_a_request_over_https_takes_three_round_trips_and_the_work() -> None:
    """TCP's, TLS's and the request's own, and the air time of what is waited for."""
    lte = NETWORKS["LTE"]
    found = converse(ASK, REPLY, lte, 0.0, "seed", SPEEDS)
    kind = "application/octet-stream"
    up = [8, framing.CLIENT_HELLO, framing.client_finished(), HTTPS.request(100, kind)]
    flight = framing.server_flight()
    assert 1448 < flight <= 2 * 1448, "two segments"
    down = [8, flight + 52, HTTPS.response(50, kind)]
    air = sum((52 + size) * 8 / lte.up for size in up) + sum((52 + size) * 8 / lte.down for size in down)
    assert found.last == pytest.approx(3 * 0.05 + 2 * 0.04 + air)
    # Acknowledgements go with what is sent within a millisecond; alone go one for Finished and request and
    # one for the answer.
    assert found.up == sum(52 + size for size in up) + 52
    assert found.down == sum(52 + size for size in down) + 52
    assert not found.failed


def test_the_device_writes_while_the_connection_opens() -> None:
    device: Program = [Send(100, REQUEST), Write((7,), (1,), whole=False), Receive(), Write((1, 2), (0, 0))]
    found = converse(device, REPLY, NETWORKS["satellite"], 0.0, "seed", SPEEDS)
    plain = converse(ASK, REPLY, NETWORKS["satellite"], 0.0, "seed", SPEEDS)
    assert found.first == pytest.approx(0.01)
    assert (found.last, found.up, found.down) == (plain.last, plain.up, plain.down)


def test_messages_have_no_handshake() -> None:
    found = converse(ASK, REPLY, NETWORKS["SBD"], 0.0, "seed", SPEEDS)
    assert found.last == pytest.approx(100 * 8 / 2400 + 20 + 0.08 + 50 * 8 / 2400 + 20)
    assert (found.up, found.down, found.packets) == (100, 50, 2)


def test_coap_carries_the_acknowledgement_with_the_answer() -> None:
    network = NETWORKS["NB-IoT NTN"]
    found = converse(ASK, REPLY, network, 0.0, "seed", SPEEDS)
    up, down = 41 + 109, 41 + 57
    assert found.last == pytest.approx(up * 8 / 1000 + 5 + 0.08 + down * 8 / 2000 + 5)
    assert (found.up, found.down) == (up + 50, down), (
        "the device acknowledges the answer: 45 bytes count as 50"
    )


def test_the_screen_takes_back_what_differs() -> None:
    device: Program = [
        Work(DEVICE, 1, 10),
        Write((1, 2, 3), (0, 1, 1), yields=True),
        Receive(),
        Write((1, 5), (1, 1)),
    ]
    late: Program = [Work(CLOUD, 100), Send(10, "")]
    network = replace(SLOW, up=8e6, down=8e6, delay=0.0)
    found = converse(device, late, network, 0.0, "seed", SPEEDS)
    read = 0.01 + 10 * 0.001
    there = 4.0 + 50 * 8 / 8e6
    assert found.first == pytest.approx(read)
    assert found.standing == pytest.approx(read), "the first token stays"
    assert [text for _, text in found.texts] == [(1, 2, 3), None, (1, 5)]
    assert [time for time, _ in found.texts] == pytest.approx([read + 0.02, there, there + 0.01])


def test_writing_yields_to_a_message() -> None:
    device: Program = [Write((1, 2, 3), (1, 1, 1), yields=True), Receive(), Write((1, 2, 9), (1, 1, 1))]
    network = replace(SLOW, down=8e9, delay=0.0)
    found = converse(device, [Work(CLOUD, 1), Send(10, "")], network, 0.0, "s", replace(SPEEDS, cloud=0.015))
    assert [text for _, text in found.texts] == [(1, 2, 9)], "two tokens were written, the third was not"
    assert found.last == pytest.approx(0.03)


def test_without_an_answer_it_fails() -> None:
    found = converse(ASK, [Receive()], NETWORKS["LTE"], 0.0, "seed", SPEEDS)
    assert found.failed
    assert found.last is None
    everything = converse(ASK, REPLY, NETWORKS["LTE"], 0.999999, "seed", SPEEDS)
    assert everything.failed
    assert everything.down == 0
    alone = converse([Write((1,), (1,))], [], NETWORKS["LTE"], 0.999999, "seed", SPEEDS)
    assert (alone.failed, alone.up, alone.last) == (False, 0, 0.01)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_seed_gives_the_same_losses(name: str) -> None:
    def run(seed: str, loss: float = 0.1) -> Outcome:
        return converse(ASK, REPLY, NETWORKS[name], loss, seed, SPEEDS)

    assert run("a") == run("a")
    several = {run(str(seed)).up for seed in range(30)}
    assert len(several) > 1
    assert {run(str(seed), 0.0).up for seed in range(5)} == {run("a", 0.0).up}


def test_actions_as_json() -> None:
    for action in [*ASK, *REPLY, Send(1, PART, 2, EVENTS, False, True), Write((1,), (0,), False, True)]:
        assert action_of(action_json(action)) == action
