"""Meshtastic through the library's own interfaces, against nodes that speak its protobufs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("meshtastic", reason="the extra meshtastic is not installed")

from meshtastic.protobuf import mesh_pb2, portnums_pb2

from edge_runtime.errors import LinkError, UsageError
from links import Link, open_link
from links.gateway.answering import NO_ANSWER, Gateway
from links.kinds import meshtastic as meshtastic_link
from links.plain import messages
from links.profiles import MESHTASTIC_PKC, meshtastic_packet
from tests.links.gateway.test_answering import SHARED, FakeSource
from tests.links.mesh_nodes import EVERYBODY, HEADER, Air, MeshNode

SERVICE, DEVICE = 0x0A1B2C3D, 0x11223344


@pytest.fixture
def air() -> Iterator[Air]:
    air = Air()
    yield air
    for node in air.nodes:
        node.close()


def listening(air: Air) -> meshtastic_link.MeshtasticLink:
    link = open_link(f"meshtastic-tcp-listen:127.0.0.1:{MeshNode(air, SERVICE).port}")
    assert isinstance(link, meshtastic_link.MeshtasticLink)
    return link


def test_a_question_and_its_answer_over_tcp(air: Air) -> None:
    port = MeshNode(air, DEVICE).port
    with listening(air) as gateway, open_link(f"meshtastic-tcp:127.0.0.1:{port}") as device:
        assert gateway.address == "!0a1b2c3d"
        device.send(b"\x00to all\xff")
        found = gateway.receive(5)
        assert found == (b"\x00to all\xff", "!11223344")
        gateway.send(bytes(gateway.largest), found.peer)
        assert device.receive(5) == (bytes(gateway.largest), None)
        assert device.receive(0) is None
        assert air.packets == [meshtastic_packet(8), meshtastic_packet(219, MESHTASTIC_PKC)]
        assert (device.largest, device.largest_received) == (231, gateway.largest)


def test_serial_and_one_node_alone(air: Air) -> None:
    node, other = MeshNode(air, DEVICE, serial=True), MeshNode(air, 0x55555555)
    with (
        listening(air) as gateway,
        open_link(f"meshtastic-tcp-listen:127.0.0.1:{other.port}") as stranger,
        open_link(f"meshtastic:{node.path}?to=!0A1B2C3D") as device,
    ):
        device.send(b"question")
        found = gateway.receive(5)
        assert found is not None
        stranger.send(b"I know it too", found.peer)
        gateway.send(b"answer", found.peer)
        assert device.receive(5) == (b"answer", None)
        assert device.receive(0.2) is None
        assert stranger.receive(0) is None, "a frame for one node reaches that node alone"


def test_lost_and_repeated_packets(air: Air) -> None:
    air.copies = lambda number: number % 3  # lost, once, twice
    port = MeshNode(air, DEVICE).port
    with listening(air) as gateway, open_link(f"meshtastic-tcp:127.0.0.1:{port}") as device:
        for number in range(6):
            device.send(bytes([number]))
        found = [gateway.receive(5) for _ in range(6)]
        assert [datagram.data[0] for datagram in found if datagram] == [1, 2, 2, 4, 5, 5]
        assert gateway.receive(0.1) is None


REASONS = ["PKI_SEND_FAIL_PUBLIC_KEY", "PKI_FAILED", "TOO_LARGE", "NO_CHANNEL", "DUTY_CYCLE_LIMIT"]


def refused(link: Link, count: int) -> Counter[str | None]:
    """What the link has lost, once it is so much."""
    assert isinstance(link, meshtastic_link.MeshtasticLink)
    end = time.monotonic() + 5
    while link.lost.total() < count and time.monotonic() < end:
        time.sleep(0.01)
    return link.lost


@pytest.mark.parametrize("reason", REASONS)
def test_a_frame_that_the_radio_refuses_is_lost_and_the_gateway_serves_the_others(
    air: Air, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    """Such as to a node whose key the radio has not heard yet."""
    first, other, gateway = MeshNode(air, DEVICE), MeshNode(air, 0x55555555), MeshNode(air, SERVICE)
    with (
        open_link(f"meshtastic-tcp-listen:127.0.0.1:{gateway.port}") as link,
        open_link(f"meshtastic-tcp:127.0.0.1:{first.port}") as one,
        open_link(f"meshtastic-tcp:127.0.0.1:{other.port}") as two,
    ):
        one.send(b"question")
        found = link.receive(5)
        assert found is not None
        assert two.receive(5) == (b"question", None), "a question is for all"
        gateway.refuses = reason
        for _ in range(3):
            link.send(b"answer", found.peer)
        assert refused(link, 3) == {"!11223344": 3}
        assert link.receive(0.1) is None
        gateway.refuses = None
        two.send(b"another")
        found = link.receive(5)
        assert found == (b"another", "!55555555")
        link.send(b"answer", found.peer)
        assert two.receive(5) == (b"answer", None)
    assert sum(reason in record.message for record in caplog.records) == 1, "said once in a while"


def test_refusals_of_the_radio(air: Air) -> None:
    node = MeshNode(air, DEVICE)
    with open_link(f"meshtastic-tcp:127.0.0.1:{node.port}?to=!0a1b2c3d") as device:
        node.refuses = "DUTY_CYCLE_LIMIT"
        device.send(b"lost")
        assert device.receive(0.3) is None, "the duty cycle passes"
        device.send(b"x")
        node.nak(list(device._sent_ids)[-1], "NO_CHANNEL", sender=SERVICE)  # type: ignore[attr-defined]
        assert device.receive(0.3) is None
        assert refused(device, 2) == {"!0a1b2c3d": 2}, "the word of another node does not count"


def test_a_refusal_sooner_than_the_number_of_its_packet(air: Air) -> None:
    node = MeshNode(air, DEVICE)
    node.refuses = "TOO_LARGE"
    with open_link(f"meshtastic-tcp:127.0.0.1:{node.port}") as device:
        assert isinstance(device, meshtastic_link.MeshtasticLink)
        send = device._interface.sendData

        def slow(*args: Any, **options: Any) -> Any:
            packet = send(*args, **options)
            time.sleep(0.3)  # the radio's word comes meanwhile
            return packet

        device._interface.sendData = slow
        device.send(bytes(100))
        assert refused(device, 1) == {None: 1}


def test_a_radio_that_goes(air: Air, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshtastic_link, "RESTART_SECONDS", 0.1)
    node = MeshNode(air, DEVICE)
    with open_link(f"meshtastic-tcp:127.0.0.1:{node.port}") as device:
        node.close()
        started = time.monotonic()
        with pytest.raises(LinkError):
            device.receive(20)
        assert time.monotonic() - started < 10
    with pytest.raises(LinkError):
        device.receive(1)
    with pytest.raises(LinkError):
        open_link(f"meshtastic-tcp:127.0.0.1:{node.port}")


def test_a_library_that_never_ends_does_not_hold_up_the_end(
    air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meshtastic_link, "CLOSE_SECONDS", 0.1)
    link = listening(air)
    close, never = link._interface.close, threading.Event()
    link._interface.close = never.wait
    started = time.monotonic()
    link.close()
    link.close()
    assert time.monotonic() - started < 2
    never.set()
    close()


def test_a_message_in_plain_text_is_answered_in_plain_text(air: Air) -> None:
    node, phone = MeshNode(air, SERVICE), MeshNode(air, DEVICE)
    heard: list[mesh_pb2.Data] = []
    phone.tell = lambda **fields: heard.append(fields["packet"].decoded)  # type: ignore[method-assign]
    answers = iter(["water " * 60])
    jobs: list[Callable[[], None]] = []
    with open_link(f"meshtastic-tcp-listen:127.0.0.1:{node.port}?text=on") as link:
        gateway = Gateway(link, SHARED, FakeSource(), jobs.append, plain=lambda text: next(answers))
        for text, to in (
            (b"to all", EVERYBODY),
            (b"Purify?", SERVICE),
            (b"Purify?", SERVICE),
            (b"And?", SERVICE),
        ):
            phone._send(text_packet(text, to))
        for _ in range(3):
            found = link.receive(5)
            assert found is not None
            assert link.in_text(found.peer)
            gateway.receive(found)
        for job in jobs:
            job()
        gateway.poll()
        assert (gateway.runs, gateway.repeats, gateway.refused) == (1, 1, 1)
        assert link.sender(found.peer) == "!11223344"
        until = time.monotonic() + 5
        while len(heard) < 3 and time.monotonic() < until:
            time.sleep(0.01)
    assert {data.portnum for data in heard} == {portnums_pb2.PortNum.TEXT_MESSAGE_APP}
    assert [data.payload for data in heard] == [*messages("water " * 60, 219), NO_ANSWER.encode()]


def text_packet(text: bytes, to: int) -> mesh_pb2.MeshPacket:
    data = mesh_pb2.Data(portnum=portnums_pb2.PortNum.TEXT_MESSAGE_APP, payload=text)
    return mesh_pb2.MeshPacket(to=to, decoded=data)


def test_what_people_write_to_each_other_is_not_read_by_itself(air: Air) -> None:
    phone = MeshNode(air, DEVICE)
    with listening(air) as link:
        phone._send(text_packet(b"hello", SERVICE))
        assert link.receive(0.2) is None
    for address in ("meshtastic:/dev/x?text=on", "meshtastic-listen:/dev/x?text=yes"):
        with pytest.raises(UsageError):
            open_link(address)


@pytest.mark.parametrize("size", [1, 20, 127, 128, 219, 231])
def test_the_size_of_a_packet_is_that_of_the_library(size: int) -> None:
    data = mesh_pb2.Data(portnum=portnums_pb2.PortNum.PRIVATE_APP, payload=bytes(size), bitfield=0)
    assert meshtastic_packet(size) == HEADER + data.ByteSize() <= 255


def test_what_the_radio_would_refuse_is_not_taken(air: Air) -> None:
    assert mesh_pb2.Constants.DATA_PAYLOAD_LEN == 233
    port = MeshNode(air, DEVICE).port
    with open_link(f"meshtastic-tcp:127.0.0.1:{port}") as device:
        device.send(bytes(231))
        with pytest.raises(LinkError):
            device.send(bytes(232))
        with pytest.raises(LinkError):
            device.send(b"x", "somebody")
        assert device.receive(0.2) is None
    assert air.packets == [255]


def test_no_radio() -> None:
    with pytest.raises(LinkError):
        open_link("meshtastic:/dev/no-such-port")
