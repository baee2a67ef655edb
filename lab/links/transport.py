"""Reliable messages over a lossy network, in simulated time: bytes over rate, and time-outs for what is lost.

Responsible for when a message arrives and for the bytes that it takes, one rule for TCP, CoAP and messages
with the figures of `networks.Recovery`. A lost packet is sent again after a time-out, by itself; there are no
windows, and acknowledgements are counted and never lost. Not responsible for what is said (see
`conversation`). The same seed gives the same losses.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from lab.links.networks import Network
from links.clock import EventClock


class Flow:
    """Messages in one direction, delivered whole and in order.

    most: bytes of a message's part in a packet. duty: share of the time in which the sender may send.
    sent: bytes so far, headers and repetitions included.
    """

    def __init__(
        self,
        clock: EventClock,
        network: Network,
        rate: float,
        most: int,
        duty: float,
        loss: float,
        rng: random.Random,
    ) -> None:
        self._clock, self._network, self._rate, self._most = clock, network, rate, most
        self._duty, self._loss, self._rng = duty, loss, rng
        self._free = 0.0  # when the next packet may leave
        self._arrived = 0.0  # when the last message does
        self._wait = network.recovery.first
        self.sent = 0

    def send(self, size: int, arrived: Callable[[], None]) -> None:
        """Queue a message of so many bytes, framing of the application and of TLS included."""
        parts = max(1, -(-size // self._most))
        for index in range(parts):
            self._arrived = max(self._arrived, self._packet(min(self._most, size - index * self._most)))
        self._wait = self._network.recovery.later
        if math.isfinite(self._arrived):
            self._clock.after(self._arrived - self._clock.now, arrived)

    def acknowledge(self, size: int) -> None:
        """Count a packet that only acknowledges; of 0 bytes there is none."""
        self.sent += max(self._network.least, size) if size else 0

    def _packet(self, size: int) -> float:
        """When a packet arrives; infinity where it is given up, and what follows it never arrives."""
        network, recovery = self._network, self._network.recovery
        size = max(network.least, network.framing.packet + size)
        airtime = size * 8 / self._rate
        begin = at = max(self._clock.now, self._free)
        self._free = begin + airtime / self._duty
        for attempt in range(recovery.tries):
            self.sent += size
            if self._rng.random() >= self._loss:
                if recovery.alone:
                    self._free = at + airtime + network.delay * recovery.alone
                return at + airtime + network.delay
            reported = airtime + network.delay
            at += reported if self._wait is None else min(recovery.most, self._wait * 2**attempt)
        return math.inf


class Connection:
    """Both directions of a network between a device and the cloud.

    up, down: messages to the cloud, and to the device. seed: of the losses.
    """

    def __init__(self, clock: EventClock, network: Network, loss: float, seed: str) -> None:
        def flow(name: str, rate: float, most: int, duty: float) -> Flow:
            return Flow(clock, network, rate, most, duty, loss, random.Random(f"{seed}/{name}"))

        self.up = flow("up", network.up, network.packet[0], network.duty)
        self.down = flow("down", network.down, network.packet[1], 1.0)
