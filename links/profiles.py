"""Kinds of links: largest frames, airtime, delays, duties and tariffs of each, with their sources.

Responsible for the figures, the one table of them. Not responsible for counting against a
duty (see `duty`) or for sending (see `datagram`).

Money and airtime are for planning: prices change and differ by contract, and an address may state another
(see `address`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from links.airtime import LoraModulation
from links.duty import DAY, HOUR, Duty


class FrameCost(NamedTuple):
    """What a frame costs its sender: seconds on the air, and money in the tariff's currency."""

    airtime: float
    money: float


@dataclass(frozen=True)
class Tariff:
    """A price by units of bytes.

    name:  of the tariff. currency: ISO 4217. price: of a unit.
    unit:  bytes, of which every one begun is billed; 0: a frame is one unit.
    least: bytes that a frame is billed at least. overhead: bytes billed beside those of the frame.
    """

    name: str = "free"
    currency: str = ""
    price: float = 0.0
    unit: int = 0
    least: int = 0
    overhead: int = 0

    def money(self, size: int) -> float:
        """The price of a frame of so many bytes."""
        billed = max(self.least, size + self.overhead)
        return self.price * (-(-billed // self.unit) if self.unit else 1)


FREE = Tariff()


@dataclass(frozen=True)
class LinkProfile:
    """One kind of link.

    up, down: most bytes of a frame from the device, and to it.
    on_air:   seconds on the air of a frame of so many bytes, either way.
    delay:    least and most seconds of the delivery beside the time on the air.
    duties:   what a sender may send.
    window:   seconds after a frame from the device at which the network sends it one frame, and only then;
              None where it may send at any time.
    """

    name: str
    up: int
    down: int
    on_air: Callable[[int], float] = lambda size: 0.0
    delay: tuple[float, float] = (0.0, 0.0)
    duties: tuple[Duty, ...] = ()
    tariff: Tariff = FREE
    window: float | None = None

    def cost(self, size: int) -> FrameCost:
        """What a frame of so many bytes costs."""
        return FrameCost(self.on_air(size), self.tariff.money(size))


def at_rate(rate: float, overhead: int = 0) -> Callable[[int], float]:
    """Seconds of a frame at so many bits per second, with so many bytes of headers."""
    return lambda size: (size + overhead) * 8 / rate


LORA_LARGEST = 255
"""Bytes of a LoRa packet."""
LONG_FAST = LoraModulation(11, 250e3, coding=5, preamble=16)

MESHTASTIC_LARGEST = 231
"""Bytes of a private application's data in a packet: 233 (`DATA_PAYLOAD_LEN` of its protobufs), less the bit
field of 2 that firmware from 2.5 on adds to what it sends."""
MESHTASTIC_HEADER = 16
MESHTASTIC_PKC = 12
"""Added to a packet for one node, which is encrypted for that node where both keys are known."""
MESHTASTIC_SIGNATURE = 66
"""Of a packet to all, which newer firmware signs where there is room."""


def meshtastic_packet(size: int, added: int = 0) -> int:
    """Bytes of a radio packet with so many bytes of a private application's data.

    A header of 16, and a message `Data`: port 256 in 3, the payload with its tag and length, and the bit
    field. Encryption with the channel's key adds nothing. added: by the kind of packet, where there is room.
    """
    packet = MESHTASTIC_HEADER + 3 + (2 if size < 128 else 3) + size + 2
    return packet + added if packet + added <= LORA_LARGEST else min(packet, LORA_LARGEST)


def meshtastic(name: str, largest: int, added: int) -> LinkProfile:
    """The default preset, LongFast, over one hop."""
    return LinkProfile(
        name,
        largest,
        largest,
        lambda size: LONG_FAST.airtime(meshtastic_packet(size, added)),
        (0.1, 1.5),
        (Duty(HOUR, airtime=360.0),),
    )


LORAWAN_OVERHEAD = 13
"""MHDR 1, FHDR 7 without options, FPort 1, MIC 4 (LoRaWAN L2 1.0.4, section 4)."""


def _lorawan(spreading: int) -> LinkProfile:
    modulation = LoraModulation(spreading, 125e3)
    return LinkProfile(
        f"lorawan-sf{spreading}",
        51,
        51,
        lambda size: modulation.airtime(size + LORAWAN_OVERHEAD),
        duties=(
            Duty(HOUR, airtime=36.0, down=False),
            Duty(DAY, airtime=30.0, down=False),
            Duty(DAY, frames=10, down=True),
        ),
        window=5.0,
    )


SBD_RATE = 2.4e3
SBD_DELAY = (5.0, 20.0)
NTN_RATES = (1e3, 2e3)
"""Bits per second from the device, and to it."""
NTN_DELAY = 5.0
NTN_LEAST, NTN_LARGEST, NTN_HEADERS = 50, 1200, 28
"""Bytes of a packet: billed at least, at most, and of those IP and UDP."""

LINK_PROFILES = {
    profile.name: profile
    for profile in (
        LinkProfile("udp", 1200, 1200),
        meshtastic("meshtastic-longfast", MESHTASTIC_LARGEST, 0),
        meshtastic("meshtastic-longfast-direct", MESHTASTIC_LARGEST - MESHTASTIC_PKC, MESHTASTIC_PKC),
        meshtastic("meshtastic-longfast-all", MESHTASTIC_LARGEST, MESHTASTIC_SIGNATURE),
        *(_lorawan(spreading) for spreading in (10, 11, 12)),
        LinkProfile(
            "sbd",
            340,
            270,
            at_rate(SBD_RATE),
            SBD_DELAY,
            tariff=Tariff("RockBLOCK, by 50 bytes", "USD", 0.16, 50, 50),
        ),
        LinkProfile(
            "sms", 140, 140, delay=(2.0, 10.0), tariff=Tariff("Twilio, United States", "USD", 0.0083)
        ),
        LinkProfile(
            "nb-iot-ntn",
            NTN_LARGEST - NTN_HEADERS,
            NTN_LARGEST - NTN_HEADERS,
            at_rate(NTN_RATES[0], NTN_HEADERS),
            (NTN_DELAY, NTN_DELAY),
            tariff=Tariff("price not stated", "", 0.0, 1, NTN_LEAST, NTN_HEADERS),
        ),
    )
}
"""udp: what crosses any path of the Internet whole (IPv6's least packet is 1,280).

meshtastic-longfast: the preset of most meshes, one hop; every further hop repeats the frame. Encrypted with
the channel's key. -direct: for one node, with its key. -all: to all nodes, signed. delay: waiting for a free
channel before a packet is sent, in slots whose number grows with the load. duties: 10% of an hour, as in the
European band from 869.4 MHz (ETSI EN 300 220).

lorawan-sf10, 11, 12: EU868 at data rates 2 to 0, the farthest reaching: 51 bytes (RP002, section 2.5.6), a
duty of 1% (ETSI EN 300 220); 30 seconds on the air from the device and 10 frames to it a day (fair use of The
Things Network), and frames to the device 5 seconds after one from it (class A with that network's RX1 delay).

sbd: Iridium's Short Burst Data to the 9602 and 9603: 340 bytes up, 270 down, 2.4 kbit/s, a delivery of 5 to
20 s (Short Burst Data Service Developers Guide). Money: about 0.16 USD for a credit of 50 bytes either way
(PX4's page on the RockBLOCK modem).

sms: 140 bytes, those of 160 characters of 7 bits (3GPP TS 23.040); the delay is an assumption, and a network
may take hours. Money: Twilio's price in the United States in 2026, either way, without the carriers' fees.

nb-iot-ntn: as Skylo's network is sold: a packet has at least 50 bytes, 28 of them IP and UDP, at most 1,200,
and a median latency of about 10 s, taken as the round trip (docs.monogoto.io, "NTN Billing"). A few kbit/s
without a dish. A price of a byte is not published: an address states it.
"""
