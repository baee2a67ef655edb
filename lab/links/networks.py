"""Networks of devices: rates, delays, packets and retransmission of each, with their sources.

Responsible for the figures. Not responsible for their effect (see `transport`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.links.framing import COAP, HTTPS, MESSAGE, Framing
from links.profiles import LINK_PROFILES, NTN_DELAY, NTN_LEAST, NTN_RATES, SBD_DELAY, SBD_RATE


@dataclass(frozen=True)
class Recovery:
    """How lost packets are sent again.

    first:  seconds after which the first message's packets are; None where the network reports the loss when
            the packet would have arrived. later: the same of later messages. Both double with every attempt,
            up to `most`.
    tries:  most transmissions of a packet; then the connection fails.
    alone:  delays that a packet waits for the one before it: 0, or the way there (1), or there and back (2).
    """

    first: float | None
    later: float | None
    most: float
    tries: int
    alone: int = 0


@dataclass(frozen=True)
class Network:
    """One kind of network; each direction has its own queue.

    down, up: bits per second to the device and to the cloud. delay: seconds one way.
    packet:   most bytes of a message's part in a packet. least: bytes of a packet at least.
    duty:     share of the time in which a device may send.
    patience: seconds after which the answer counts as failed.
    """

    name: str
    framing: Framing
    recovery: Recovery
    down: float
    up: float
    delay: float
    packet: tuple[int, int]
    least: int = 0
    duty: float = 1.0
    patience: float = 60.0


SEGMENT = 1448
"""Bytes of a segment on an MTU of 1,500, with timestamps."""
BLOCK = 1024
"""Bytes of a CoAP block (RFC 7959)."""


def over_tcp(name: str, down: float, up: float, delay: float) -> Network:
    """TCP: a time-out of 1 s before the first round trip (RFC 6298), then the round trip and the 200 ms that
    Linux takes for its variation at least; at most 120 s, and 15 repetitions.
    """
    recovery = Recovery(1.0, 2 * delay + 0.2, 120.0, 16)
    return Network(name, HTTPS, recovery, down, up, delay, (SEGMENT, SEGMENT))


NETWORKS = {
    network.name: network
    for network in (
        over_tcp("LTE", 20e6, 5e6, 0.025),
        over_tcp("3G", 1e6, 384e3, 0.075),
        over_tcp("satellite", 256e3, 128e3, 0.3),
        Network(
            "NB-IoT NTN",
            COAP,
            Recovery(30.0, 30.0, 240.0, 5, alone=2),
            NTN_RATES[1],
            NTN_RATES[0],
            NTN_DELAY,
            (BLOCK, BLOCK),
            least=NTN_LEAST,
            duty=256 / 296,
            patience=600.0,
        ),
        Network(
            "SBD",
            MESSAGE,
            Recovery(None, None, 0.0, 5, alone=1),
            SBD_RATE,
            SBD_RATE,
            SBD_DELAY[1],
            (LINK_PROFILES["sbd"].up, LINK_PROFILES["sbd"].down),
            patience=600.0,
        ),
    )
}
"""packet: to the cloud, to the device.

LTE, 3G, satellite: round trips of 50, 150 and 600 ms; to the cloud 5 Mbit/s, 384 kbit/s (the least class of
HSUPA's predecessor, UMTS) and 128 kbit/s.

NB-IoT NTN: the figures of `links.profiles`; a median latency that is taken as the round trip favours methods
with many of them. The device pauses 40 ms after 256 ms of sending (3GPP TS 36.211, section 10.1.3.6).
Confirmable messages, one at a time, 4 retransmissions (RFC 7252, section 4.8), with a timeout of 30 s in
place of 2 s: a round trip and the longest packet twice.

SBD: the figures of `links.profiles`, the longest delivery. A session reports its failure when it ends.
"""

LOSSES = (0.0, 0.05, 0.1)
"""Shares of the packets lost, each direction by itself."""
