"""An emulated link: what arrives, when, and what it costs, in no time at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import LinkError
from links.profiles import LINK_PROFILES, LinkProfile, at_rate
from tests.links.emulation import Emulation

SBD = LINK_PROFILES["sbd"]
SLOW = LinkProfile("slow", 100, 60, at_rate(800), (1.0, 2.0))
"""A second for 100 bytes."""


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
