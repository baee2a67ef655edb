"""Frames over Meshtastic, a mesh of LoRa radios: packets of the port for private applications.

A service that is asked for it (text=on) takes messages of the port for text too, which any app of the mesh
sends.

Responsible for a radio on a serial port or on the network, through the library `meshtastic`, and for what the
radio refuses. Not responsible for the mesh: the radio's firmware sends, repeats, encrypts and keeps to the
duty cycle.
"""

from __future__ import annotations

import importlib
import logging
import queue
import re
import threading
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import Any

from common.installed import remedy
from edge_runtime.errors import LinkError, UsageError
from links.address import COMMON, LinkAddress
from links.datagram import Datagram, Link
from links.profiles import LINK_PROFILES, LinkProfile

log = logging.getLogger("links")

TCP_PORT = 4403
CONNECT_SECONDS = 30
CLOSE_SECONDS = 5.0
RESTART_SECONDS = 30.0
"""A radio that has gone is waited for so long: changed settings make it start again."""
WAITING_FRAMES = 256
CHECKED = 1.0
"""Seconds between looks at the connection while nothing arrives."""
SENT_KEPT = 64
EVERYBODY = 0xFFFFFFFF
TEXT = "/text"
"""Behind the name of a peer that has sent a message in plain text."""

MISSING_KEY = {"PKI_FAILED", "PKI_UNKNOWN_PUBKEY", "PKI_SEND_FAIL_PUBLIC_KEY"}
"""The radio does not know the other node's key yet, or has an old one: its next NodeInfo brings it."""

REPORT_SECONDS = 600.0
"""Refusals for one peer are logged no more often."""
LOST_PEERS = 1024


DIRECT, TO_ALL = "meshtastic-longfast-direct", "meshtastic-longfast-all"


def preset(service: bool, to: int | None) -> str:
    """The profile of a link: answers are for one node; questions are where it is known which."""
    return DIRECT if service or to is not None else TO_ALL


class MeshtasticLink(Link):
    """A radio and the nodes that it reaches.

    interface: of the library, connected: `SerialInterface`, `TCPInterface` or one that behaves like them.
    to:        node number of the service; None: frames go to all nodes of the channel. A device with `to`
               receives from that node alone.
    channel:   index of the channel for what goes to all.
    text:      messages in plain text that are for this node alone are received too, and answered as such.

    lost:      frames that the radio has refused, by peer (None: all nodes): of its queue, its duty cycle, or
               because it cannot reach or encrypt for one node. They are lost like any other; what ends a link
               is the loss of the connection to the radio.

    Peers are spelled as Meshtastic does: !a1b2c3d4. `close` closes the interface.
    """

    def __init__(
        self,
        interface: Any,
        *,
        service: bool = False,
        to: int | None = None,
        channel: int = 0,
        text: bool = False,
        profile: LinkProfile | None = None,
    ) -> None:
        own = LINK_PROFILES[preset(service, to)]
        if own.name == TO_ALL:  # answers are always for one node
            own = replace(own, down=LINK_PROFILES[DIRECT].down)
        super().__init__(own if profile is None else profile, service=service)
        self._interface, self._to, self._channel = interface, to, channel
        self._inbox: queue.Queue[Datagram] = queue.Queue(WAITING_FRAMES)
        self.lost: Counter[str | None] = Counter()
        self._sent_ids: OrderedDict[int, tuple[int, int]] = OrderedDict()  # packets of late: size, receiver
        self._reported: OrderedDict[str | None, float] = OrderedDict()  # when a refusal was logged
        self._sending = threading.Lock()  # a refusal may come before the library says the packet's number
        self._gone: float | None = None
        self._closed = False
        pub = _library("pubsub").pub
        self._subscriptions = [
            (pub.subscribe(handler, topic)[0], topic)
            for handler, topic in (
                (self._on_data, "meshtastic.receive.data.PRIVATE_APP"),
                *([(self._on_text, "meshtastic.receive.text")] if text else []),
                (self._on_routing, "meshtastic.receive.routing"),
                (self._on_lost, "meshtastic.connection.lost"),
                (self._on_established, "meshtastic.connection.established"),
            )
        ]

    @property
    def address(self) -> str:
        """The radio's own node, as its peers see it."""
        return spelled_node(self._own)

    @property
    def _own(self) -> int:
        info = getattr(self._interface, "myInfo", None)
        return int(info.my_node_num) if info else 0

    def sender(self, peer: str | None) -> str | None:
        return peer and peer.removesuffix(TEXT)

    def in_text(self, peer: str | None) -> bool:
        return peer is not None and peer.endswith(TEXT)

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        to = self._to if peer is None else parse_node(peer.removesuffix(TEXT))
        self._check()
        status = getattr(self._interface, "queueStatus", None)
        if self._gone is not None or (status is not None and status.free <= 0):
            return  # the library would wait; here a frame that the radio cannot take is lost
        ports = _library("meshtastic.protobuf.portnums_pb2").PortNum
        port = ports.TEXT_MESSAGE_APP if self.in_text(peer) else ports.PRIVATE_APP
        options = {"channelIndex": self._channel} if to is None else {}
        to = EVERYBODY if to is None else to
        with self._sending:
            try:
                packet = self._interface.sendData(frame, destinationId=to, portNum=port, **options)
            except (Exception, SystemExit) as error:  # the library has no error of its own for all that fails
                raise LinkError(f"meshtastic: the radio did not take a frame: {error}") from error
            self._sent_ids[packet.id] = len(frame), to
            while len(self._sent_ids) > SENT_KEPT:
                self._sent_ids.popitem(last=False)

    def _next(self, timeout: float) -> Datagram | None:
        deadline = self.clock() + timeout
        while True:
            self._check()
            left = deadline - self.clock()
            try:
                return self._inbox.get(timeout=max(0.0, min(left, CHECKED)))
            except queue.Empty:
                if left <= CHECKED:
                    self._check()
                    return None

    def _check(self) -> None:
        if self._closed:
            raise LinkError("meshtastic: the link is closed; open another one")
        if self._gone is not None and self.clock() - self._gone > RESTART_SECONDS:
            raise LinkError("meshtastic: the connection to the radio is gone; is it switched on?")

    # The library calls these in a thread of its own, for every radio that this process uses.

    def _on_text(self, packet: dict[str, Any], interface: Any) -> None:
        if packet.get("to") == self._own:  # not what people say to each other on a channel
            self._on_data(packet, interface, TEXT)

    def _on_data(self, packet: dict[str, Any], interface: Any, form: str = "") -> None:
        sender = int(packet.get("from", 0))
        if interface is not self._interface or sender in (0, self._own):
            return
        if not self.service and self._to not in (None, sender):
            return
        data = bytes(packet["decoded"].get("payload", b""))
        with suppress(queue.Full):
            self._inbox.put_nowait(Datagram(data, spelled_node(sender) + form if self.service else None))

    def _on_routing(self, packet: dict[str, Any], interface: Any) -> None:
        decoded = packet.get("decoded", {})
        with self._sending:
            sent = self._sent_ids.get(decoded.get("requestId", 0))
        # Only the radio's own word counts: anybody in the mesh can send such a packet.
        if interface is not self._interface or sent is None or packet.get("from") != self._own:
            return
        reason = decoded.get("routing", {}).get("errorReason", "NONE")
        if reason != "NONE":
            self._lose(*sent, reason)

    def _lose(self, size: int, to: int, reason: str) -> None:
        """Count a frame that the radio has refused, and log it once in a while."""
        peer = None if to == EVERYBODY else spelled_node(to)
        self.lost[peer] += 1
        if len(self.lost) > LOST_PEERS:
            del self.lost[next(iter(self.lost))]
        now = self.clock()
        if now - self._reported.get(peer, -REPORT_SECONDS) < REPORT_SECONDS:
            return
        self._reported[peer] = now
        self._reported.move_to_end(peer)
        while len(self._reported) > LOST_PEERS:
            self._reported.popitem(last=False)
        remedy = (
            "it has not heard that node's key" if reason in MISSING_KEY else "check its channel and settings"
        )
        log.warning(
            "the radio refuses a frame of %d bytes to %s: %s; %s", size, peer or "all", reason, remedy
        )

    def _on_lost(self, interface: Any) -> None:
        if interface is self._interface:
            self._gone = self.clock()

    def _on_established(self, interface: Any) -> None:
        if interface is self._interface:
            self._gone = None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        pub = _library("pubsub").pub
        for listener, topic in self._subscriptions:
            pub.unsubscribe(listener, topic)
        # A radio that is gone cannot be told goodbye, and the library may wait for it for ever.
        goodbye = threading.Thread(target=self._leave, daemon=True)
        goodbye.start()
        goodbye.join(CLOSE_SECONDS)

    def _leave(self) -> None:
        with suppress(Exception):
            self._interface.close()


def parse_node(text: str) -> int:
    """The number of a node from its name: !a1b2c3d4. Raises LinkError for another text."""
    match = re.fullmatch(r"!([0-9a-f]{8})", text.lower())
    if match is None:
        raise LinkError(f"meshtastic: expected a node like !a1b2c3d4, found {text!r:.80}")
    return int(match[1], 16)


def spelled_node(number: int) -> str:
    """A node's name from its number."""
    return f"!{number:08x}"


def open_meshtastic(address: LinkAddress) -> MeshtasticLink:
    """Connect to the radio of an address: meshtastic:/dev/ttyUSB0 or meshtastic-tcp:HOST[:PORT]."""
    service = address.kind.endswith("-listen")
    tcp = address.kind.startswith("meshtastic-tcp")
    channel = int(address.number("channel", 0, 0, 7, whole=True))
    named = address.options.get("to")
    text = address.options.get("text", "off")
    if text != "off" and not (service and text == "on"):
        raise UsageError(f"link: text: expected on, at the service's end, or off, found {text!r:.80}")
    if service and named is not None:
        raise UsageError(
            f"link: {address.kind} answers whoever asks: expected no option to, found {named!r:.80}"
        )
    try:
        to = None if named is None else parse_node(named)
    except LinkError as error:
        raise UsageError(f"link: to: {error}") from None
    profile = address.profile(preset(service, to)) if set(COMMON) & set(address.options) else None
    if tcp:
        host, port = address.host_and_port(host_needed=True, port=TCP_PORT)
    elif not address.where:
        raise UsageError(f"link: expected a serial port, as in {address.kind}:/dev/ttyUSB0, found none")
    try:
        if tcp:
            module = _library("meshtastic.tcp_interface")
            interface = module.TCPInterface(host, portNumber=port, noNodes=True, timeout=CONNECT_SECONDS)
        else:
            module = _library("meshtastic.serial_interface")
            interface = module.SerialInterface(address.where, noNodes=True, timeout=CONNECT_SECONDS)
    except LinkError:
        raise
    except (Exception, SystemExit) as error:  # the library has no error of its own for all that fails
        raise LinkError(f"{address}: expected a Meshtastic radio, found none: {error}") from None
    return MeshtasticLink(
        interface, service=service, to=to, channel=channel, text=text == "on", profile=profile
    )


def _library(name: str) -> Any:
    """A module of the extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LinkError(
            f"meshtastic: expected the package {error.name}, found none; {remedy('meshtastic')}"
        ) from None
