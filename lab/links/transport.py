"""A reliable conversation over a lossy network, in simulated time: packets, windows, retransmission.

Responsible for queues, losses, acknowledgements and retransmission in both directions, one rule for TCP, CoAP
and messages with the figures of `networks.Recovery`. Not responsible for what is said (see `lab.rivals`).
The same seed gives the same losses.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from lab.links.networks import Network, Recovery
from links.clock import EventClock

REORDERED = 3
"""Later packets that have to arrive before an earlier one counts as lost."""


class Channel:
    """One direction: packets leave one after the other at the rate, and arrive a delay later, or never.

    sent: bytes so far, those of lost packets too. packets: number of them.
    """

    def __init__(
        self, clock: EventClock, rate: float, delay: float, duty: float, loss: float, rng: random.Random
    ) -> None:
        self._clock, self._rate, self._delay, self._duty = clock, rate, delay, duty
        self._loss, self._rng = loss, rng
        self._free = 0.0
        self.sent = self.packets = 0

    def send(self, size: int, arrived: Callable[[], None], lost: Callable[[], None] | None = None) -> None:
        """Send a packet of so many bytes. lost: called when it would have arrived."""
        begin = max(self._clock.now, self._free)
        airtime = size * 8 / self._rate
        self._free = begin + airtime / self._duty
        self.sent += size
        self.packets += 1
        wait = begin + airtime + self._delay - self._clock.now
        if self._rng.random() >= self._loss:
            self._clock.after(wait, arrived)
        elif lost is not None:
            self._clock.after(wait, lost)


@dataclass
class _Packet:
    """size: of the payload. last: whether a message ends with it. sent: times. at: when last sent."""

    size: int
    last: bool
    sent: int = 0
    at: float = 0.0
    waiting: bool = False  # sent again as soon as the window lets it


class RetransmissionTimer:
    """The timeout of RFC 6298: smoothed round trip and four times its variation, doubled at every expiry."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._smooth: float | None = None
        self._variation = 0.0
        self._backoff = 1

    @property
    def seconds(self) -> float:
        recovery = self._recovery
        base = recovery.timeout
        if recovery.measured and self._smooth is not None:
            base = max(recovery.least, self._smooth + 4 * self._variation)
        return min(recovery.most, base * self._backoff)

    def measured(self, seconds: float) -> None:
        """A round trip of a packet that was sent once."""
        if self._smooth is None:
            self._smooth, self._variation = seconds, seconds / 2
        else:
            self._variation = 0.75 * self._variation + 0.25 * abs(self._smooth - seconds)
            self._smooth = 0.875 * self._smooth + 0.125 * seconds
        self._backoff = 1

    def expired(self) -> None:
        self._backoff *= 2

    def progressed(self) -> None:
        self._backoff = 1


class Flow:
    """Messages in one direction, delivered whole and in order.

    deliver: called with every message's number. other: the flow whose packets acknowledgements go with.
    """

    def __init__(
        self, clock: EventClock, network: Network, forward: Channel, back: Channel, most: int
    ) -> None:
        self._clock, self._network, self._recovery = clock, network, network.recovery
        self._forward, self._back, self._most = forward, back, most
        self._packets: list[_Packet] = []
        self._next = 0
        self._window = float(network.recovery.window)
        self._acked: set[int] = set()  # as the sender knows it
        self._received: set[int] = set()
        self._in_order = 0
        self._messages = 0
        self._timer = RetransmissionTimer(network.recovery)
        self._alarm = 0
        self._armed = False
        self._ack_due = False
        self._recovered = 0  # no second reduction of the window for losses of packets before this one
        self.deliver: Callable[[int], None] = lambda number: None
        self.other: Flow | None = None

    def send(self, size: int) -> None:
        """Queue a message of so many bytes, framing of the application and of TLS included."""
        parts = max(1, -(-size // self._most))
        sizes = [min(self._most, size - index * self._most) for index in range(parts)]
        self._packets += [_Packet(part, index == parts - 1) for index, part in enumerate(sizes)]
        self._push()

    @property
    def _flying(self) -> list[int]:
        return [n for n in range(self._next) if n not in self._acked and not self._packets[n].waiting]

    def _push(self) -> None:
        """Send what the window lets: first what is to be repeated, then what is new."""
        flying = len(self._flying)
        for number in range(self._next):
            if flying >= int(self._window):
                return
            if self._packets[number].waiting:
                self._transmit(number)
                flying += 1
        while self._next < len(self._packets) and flying < int(self._window):
            self._next += 1
            self._transmit(self._next - 1)
            flying += 1

    def _transmit(self, number: int) -> None:
        packet = self._packets[number]
        if packet.sent >= self._recovery.tries:  # given up: what follows it never arrives
            return
        packet.sent += 1
        packet.waiting = False
        packet.at = self._clock.now
        carried = self.other._carry() if self.other is not None else None
        framing = self._network.framing
        size = max(self._network.least, framing.packet + packet.size)

        def arrived() -> None:
            if carried is not None:
                carried()
            self._arrived(number)

        silent = framing.ack is None
        self._forward.send(size, arrived, (lambda: self._lost(number)) if silent else None)
        if not silent and not self._armed:
            self._arm()

    def _lost(self, number: int) -> None:
        """The link has told the sender that a packet was lost."""
        self._packets[number].waiting = True
        self._push()

    def _arrived(self, number: int) -> None:
        self._received.add(number)
        done = []
        while self._in_order in self._received:
            if self._packets[self._in_order].last:
                done.append(self._messages)
                self._messages += 1
            self._in_order += 1
        if self._network.framing.ack is None:
            self._acknowledged(frozenset(self._received))
        elif not self._ack_due:
            self._ack_due = True
            self._clock.after(self._recovery.ack_wait, self._ack_alone)
        for message in done:
            self.deliver(message)

    def _carry(self) -> Callable[[], None] | None:
        """The acknowledgement that is due, to go with a packet the other way."""
        if not self._ack_due:
            return None
        self._ack_due = False
        seen = frozenset(self._received)
        return lambda: self._acknowledged(seen)

    def _ack_alone(self) -> None:
        acknowledge = self._carry()
        if acknowledge is not None and self._network.framing.ack is not None:
            self._back.send(max(self._network.least, self._network.framing.ack), acknowledge)

    def _acknowledged(self, seen: frozenset[int]) -> None:
        fresh = seen - self._acked
        if not fresh:
            return
        self._acked |= fresh
        for number in fresh:
            self._packets[number].waiting = False
        once = [self._clock.now - self._packets[n].at for n in fresh if self._packets[n].sent == 1]
        if once:
            self._timer.measured(min(once))
        else:
            self._timer.progressed()
        if self._recovery.grows:
            self._window += len(fresh)
        if self._recovery.quick:
            self._repair()
        self._arm()
        self._push()

    def _repair(self) -> None:
        """Marks packets as lost after which enough later ones have arrived; halves the window once."""
        highest = sorted(self._acked)
        for number in self._flying:
            later = sum(other > number for other in highest)
            if later >= REORDERED and self._packets[number].sent == 1:
                self._packets[number].waiting = True
                if number >= self._recovered:
                    self._window, self._recovered = max(2.0, self._window / 2), self._next

    def _arm(self) -> None:
        """Starts the timer anew, or stops it where nothing is under way."""
        self._alarm += 1
        self._armed = bool(self._flying)
        if not self._armed:
            return
        mine = self._alarm

        def ring() -> None:
            if mine != self._alarm:
                return
            self._armed, flying = False, self._flying
            self._timer.expired()
            if self._recovery.grows:
                self._window = 1.0
            for number in flying:  # all that is under way counts as lost
                self._packets[number].waiting = True
            self._push()

        self._clock.after(self._timer.seconds, ring)


class Connection:
    """Both directions of a network between a device and the cloud.

    up, down: messages to the cloud, and to the device. seed: of the losses.
    """

    def __init__(self, clock: EventClock, network: Network, loss: float, seed: str) -> None:
        def channel(rate: float, duty: float, name: str) -> Channel:
            return Channel(clock, rate, network.delay, duty, loss, random.Random(f"{seed}/{name}"))

        self.to_cloud = channel(network.up, network.duty, "up")
        self.to_device = channel(network.down, 1.0, "down")
        self.up = Flow(clock, network, self.to_cloud, self.to_device, network.packet[0])
        self.down = Flow(clock, network, self.to_device, self.to_cloud, network.packet[1])
        self.up.other, self.down.other = self.down, self.up
