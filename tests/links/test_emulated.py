"""An emulated link: what arrives, when, and what it costs, in no time at all."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import LinkError
from links.datagram import Datagram
from links.duty import HOUR, Duty
from links.profiles import LINK_PROFILES, LinkProfile, at_rate
from tests.links.emulation import Emulation

SBD = LINK_PROFILES["sbd"]
SLOW = LinkProfile("slow", 100, 60, at_rate(800), (1.0, 2.0))
"""A second for 100 bytes."""


def echo(emulation: Emulation, after: float = 0.0) -> None:
    gateway = emulation.gateway

    def answer(datagram: Datagram) -> None:
        emulation.clock.after(after, lambda: gateway.send(datagram.data[::-1], datagram.peer))

    gateway.listen(answer)


def test_a_frame_and_its_answer() -> None:
    emulation = Emulation(SLOW, seed=3)
    device = emulation.device()
    echo(emulation, after=10)
    started = time.monotonic()
    device.send(b"question")
    assert device.receive(5) is None
    assert emulation.clock.now == 5
    assert device.receive(3600) == (b"noitseuq", None)
    # Two frames of 0.08 s, two deliveries of 1 to 2 s, and the service's 10 s.
    assert 12.16 <= emulation.clock.now <= 14.16
    assert device.receive(3600) is None
    assert time.monotonic() - started < 5
    assert (device.sent.frames, device.sent.bytes, device.received.bytes) == (1, 8, 8)
    assert device.sent.airtime == pytest.approx(0.08)


def test_sizes_addresses_and_a_closed_link() -> None:
    emulation = Emulation(SBD)
    device, gateway = emulation.device(), emulation.gateway
    assert (device.largest, device.largest_received) == (340, 270)
    assert (gateway.largest, gateway.largest_received) == (270, 340)
    for end, frame, peer in (
        (device, b"", None),
        (device, bytes(341), None),
        (gateway, bytes(271), "device"),
        (gateway, b"x", None),
        (gateway, b"x", "nobody"),
    ):
        with pytest.raises(LinkError):
            end.send(frame, peer)
    assert device.sent.frames == gateway.sent.frames == 0
    with device:
        pass
    for act in (lambda: device.send(b"x"), lambda: device.receive(1)):
        with pytest.raises(LinkError):
            act()


@given(
    st.integers(1, 30),
    st.floats(0, 0.5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_what_arrives_was_sent(
    count: int, loss: float, duplicates: float, reordering: float, seed: int
) -> None:
    emulation = Emulation(SLOW, loss=loss, duplicates=duplicates, reordering=reordering, seed=seed)
    device = emulation.device()
    for number in range(count):
        device.send(bytes([number]))
    found = []
    while datagram := emulation.gateway.receive(1e4):
        found.append(datagram.data[0])
    assert set(found) <= set(range(count))
    assert len(set(found)) == count - device.lost
    assert max((found.count(number) for number in found), default=0) <= 2
    if duplicates == 0:
        assert len(found) == len(set(found))


def test_a_duty_holds_frames_back() -> None:
    emulation = Emulation(LinkProfile("radio", 100, 100, at_rate(800), duties=(Duty(HOUR, airtime=2.0),)))
    device = emulation.device()
    for _ in range(3):
        device.send(bytes(100))
    assert device.pause(100) == pytest.approx(HOUR + 1), "the third leaves after an hour, a fourth with it"
    times = []
    while emulation.gateway.receive(2 * HOUR):
        times.append(emulation.clock.now)
    assert times == pytest.approx([1, 2, HOUR + 1])


def test_a_network_that_answers_only_after_a_frame_of_the_device() -> None:
    lorawan = LINK_PROFILES["lorawan-sf10"]
    uplink = lorawan.cost(20).airtime
    quick, late = Emulation(lorawan), Emulation(lorawan)
    echo(quick, after=4)
    echo(late, after=6)
    device = quick.device()
    device.send(bytes(20))
    assert device.receive(60) is not None
    assert quick.clock.now == pytest.approx(2 * uplink + 5)
    device = late.device()
    device.send(bytes(20))
    assert device.receive(600) is None, "the window was over"
    device.send(b"?")
    found = device.receive(600)
    assert found is not None
    assert found.data == bytes(20), "the answer that waited"


def test_costs() -> None:
    assert [SBD.cost(size).money for size in (1, 50, 51, 270)] == pytest.approx([0.16, 0.16, 0.32, 0.96])
    assert SBD.tariff.currency == "USD"
    assert LINK_PROFILES["udp"].cost(100).money == 0
    assert LINK_PROFILES["meshtastic-longfast"].tariff.name == "free"
    for profile in LINK_PROFILES.values():
        for size in range(1, min(profile.up, profile.down) + 1):
            if profile.name != "meshtastic-longfast-all":  # a frame too large to be signed is shorter
                assert profile.cost(size).airtime >= profile.cost(max(1, size - 1)).airtime >= 0
            assert profile.cost(size).money >= profile.cost(max(1, size - 1)).money >= 0
