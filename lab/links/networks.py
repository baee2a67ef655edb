"""Networks of devices: rates, delays, packets and retransmission of each, with their sources.

Responsible for the figures. Not responsible for their effect (see `transport`) or for the three links that
the proxy simulates in real time, which are the same (see `link`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.links.framing import COAP, HTTPS, MESSAGE, Framing
from lab.links.link import LINKS
from links.profiles import LINK_PROFILES, NTN_DELAY, NTN_LEAST, NTN_RATES, SBD_DELAY, SBD_RATE


@dataclass(frozen=True)
class Recovery:
    """How lost packets are found and sent again.

    window:   packets in flight at first. grows: by one with every packet acknowledged (slow start).
    timeout:  seconds before the first time is known; least, most: bounds of later ones.
    measured: the timeout follows the round trips (RFC 6298); otherwise it stays, doubled with every attempt.
    quick:    a packet is sent again at once when three later ones have arrived (RFC 6675).
    tries:    most transmissions of a packet; then the connection fails.
    ack_wait: seconds for which an acknowledgement waits for a message to go with.
    """

    window: int
    grows: bool
    timeout: float
    least: float
    most: float
    measured: bool
    quick: bool
    tries: int
    ack_wait: float


TCP_RECOVERY = Recovery(10, True, 1.0, 0.2, 120.0, True, True, 16, 0.001)
"""Initial window of 10 segments (RFC 6928), timeout of 1 s before the first round trip (RFC 6298), the least
and most of Linux and its 15 retries. Receivers acknowledge at once at the beginning of a connection. Without
tail loss probes (RFC 8985), which would repair a lost last segment sooner."""


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

NETWORKS = {
    network.name: network
    for network in (
        Network("LTE", HTTPS, TCP_RECOVERY, LINKS["LTE"].rate, 5e6, LINKS["LTE"].delay, (SEGMENT, SEGMENT)),
        Network("3G", HTTPS, TCP_RECOVERY, LINKS["3G"].rate, 384e3, LINKS["3G"].delay, (SEGMENT, SEGMENT)),
        Network(
            "satellite",
            HTTPS,
            TCP_RECOVERY,
            LINKS["satellite"].rate,
            128e3,
            LINKS["satellite"].delay,
            (SEGMENT, SEGMENT),
        ),
        Network(
            "NB-IoT NTN",
            COAP,
            Recovery(1, False, 30.0, 30.0, 240.0, False, False, 5, 5.0),
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
            Recovery(1, False, 20.0, 20.0, 20.0, False, False, 5, 0.0),
            SBD_RATE,
            SBD_RATE,
            SBD_DELAY[1],
            (LINK_PROFILES["sbd"].up, LINK_PROFILES["sbd"].down),
            patience=600.0,
        ),
    )
}
"""packet: to the cloud, to the device.

LTE, 3G, satellite: the proxy's rates to the device, round trips of 50, 150 and 600 ms; to the cloud 5 Mbit/s,
384 kbit/s (the least class of HSUPA's predecessor, UMTS) and 128 kbit/s.

NB-IoT NTN: the figures of `links.profiles`; a median latency that is taken as the round
trip favours methods with many of them. The device pauses 40 ms after 256 ms of sending (3GPP TS 36.211,
section 10.1.3.6). Confirmable messages, one at a time, 4 retransmissions (RFC 7252, section 4.8), with a
timeout of 30 s in place of 2 s: a round trip and the longest packet twice. An acknowledgement waits 5 s for
the answer to go with.

SBD: the figures of `links.profiles`, the longest delivery. A session reports its failure
when it ends.
"""

LOSSES = (0.0, 0.05, 0.1)
"""Shares of the packets lost, each direction by itself."""
