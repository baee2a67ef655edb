"""UDP on real sockets of this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from edge_runtime.errors import LinkError
from links import LINK_PROFILES, open_link
from links.kinds.udp import UdpLink


@pytest.fixture
def gateway() -> Iterator[UdpLink]:
    with UdpLink("127.0.0.1", 0, service=True) as link:
        yield link


def port_of(link: UdpLink) -> str:
    return link.address.rpartition(":")[2]


def test_two_devices_and_a_gateway(gateway: UdpLink) -> None:
    with (
        open_link(f"udp:127.0.0.1:{port_of(gateway)}") as one,
        open_link(f"udp:127.0.0.1:{port_of(gateway)}?profile=nb-iot-ntn") as two,
    ):
        assert (one.largest, two.largest) == (1200, 1172)
        one.send(b"from one")
        first = gateway.receive(5)
        two.send(bytes(1172))
        second = gateway.receive(5)
        assert first is not None
        assert second is not None
        assert (first.data, second.data) == (b"from one", bytes(1172))
        assert first.peer != second.peer
        gateway.send(b"to two", second.peer)
        gateway.send(b"to one", first.peer)
        assert one.receive(5) == (b"to one", None)
        assert two.receive(5) == (b"to two", None)
        assert one.receive(0) is None
        assert two.received.bytes == 6


def test_ipv6() -> None:
    try:
        gateway = UdpLink("::1", 0, service=True)
    except LinkError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with gateway, open_link(f"udp:[::1]:{port_of(gateway)}") as device:
        device.send(b"x")
        found = gateway.receive(5)
        assert found is not None
        assert str(found.peer).startswith("[::1]:")
        gateway.send(b"y", found.peer)
        assert device.receive(5) == (b"y", None)


def test_frames_of_others_and_frames_too_large_are_dropped(gateway: UdpLink) -> None:
    with (
        UdpLink("127.0.0.1", int(port_of(gateway))) as device,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        device.send(b"where am I")
        found = gateway.receive(5)
        assert found is not None
        host, _, port = str(found.peer).rpartition(":")
        stranger.sendto(b"not from the service", (host, int(port)))
        gateway.send(b"yes", found.peer)
        assert device.receive(5) == (b"yes", None)
        assert device.receive(0.05) is None
        address = ("127.0.0.1", int(port_of(gateway)))
        for data in (b"", bytes(1201), bytes(9000), b"last"):
            stranger.sendto(data, address)
        found = gateway.receive(5)
        assert found is not None
        assert found.data == b"last"


def test_a_port_without_a_listener_is_a_frame_lost(gateway: UdpLink) -> None:
    port = int(port_of(gateway))
    gateway.close()
    with UdpLink("127.0.0.1", port) as device:
        started = time.monotonic()
        for _ in range(3):
            device.send(b"anybody?")
            assert device.receive(0.1) is None
        assert time.monotonic() - started >= 0.29, "an error of the network is no reason to return early"


def test_receive_waits_no_longer_than_told(gateway: UdpLink) -> None:
    started = time.monotonic()
    assert gateway.receive(0.2) is None
    assert 0.19 <= time.monotonic() - started < 2
    with UdpLink("127.0.0.1", int(port_of(gateway))) as device:
        timer = threading.Timer(0.1, device.send, [b"late"])
        timer.start()
        assert gateway.receive(5) is not None
        timer.join()


def test_closed(gateway: UdpLink) -> None:
    gateway.close()
    gateway.close()
    with pytest.raises(LinkError):
        gateway.receive(1)
    with pytest.raises(LinkError):
        gateway.send(b"x", "127.0.0.1:9")


def test_a_taken_port_and_an_unknown_host(gateway: UdpLink, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LinkError):
        open_link(f"udp-listen:127.0.0.1:{port_of(gateway)}")
    with pytest.raises(LinkError):
        open_link("udp:no..host:9")

    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(LinkError):
            open_link("udp:no-such-host:9")
    for peer in ("nowhere", "example.com:9", "127.0.0.1:x", "127.0.0.1:99999", ":9:9"):
        with pytest.raises(LinkError):
            gateway.send(b"x", peer)


def test_listening_everywhere() -> None:
    with open_link("udp-listen:0") as gateway:
        assert isinstance(gateway, UdpLink)
        assert gateway.service
        hosts = ["127.0.0.1", "localhost", *(["[::1]"] if gateway.address.startswith("[::]:") else [])]
        for host in hosts:
            with open_link(f"udp:{host}:{port_of(gateway)}") as device:
                device.send(b"x")
                found = gateway.receive(5)
                assert found is not None
                gateway.send(b"y", found.peer)
                assert device.receive(5) == (b"y", None)


def test_a_frame_that_the_other_ends_profile_allows_and_this_one_does_not_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    narrow = LINK_PROFILES["lorawan-sf10"]
    with (
        UdpLink("127.0.0.1", 0, service=True, profile=narrow) as service,
        UdpLink("127.0.0.1", int(service.address.rpartition(":")[2])) as device,
    ):
        for size in (52, 60, 60, 51):
            device.send(bytes(size))
        found = service.receive(5)
        assert found is not None
        assert (len(found.data), service.oversized) == (51, 60)
    assert [record.message for record in caplog.records] == [
        f"a frame of {size} bytes from {found.peer} is dropped: expected at most 51 on profile lorawan-sf10; "
        "give both ends the same"
        for size in (52, 60)
    ], "once for each greater size"
