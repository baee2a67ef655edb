"""Time on air of a LoRa packet, by Semtech's published formula.

Responsible for the formula (Semtech AN1200.13, "LoRa Modem Designer's Guide", section 4; SX1276 datasheet,
section 4.1.1.7). Not responsible for the headers that a network puts into a packet (see `profiles`).
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_SYMBOL = 0.016
"""Seconds of a symbol from which the low data rate optimization is on."""


@dataclass(frozen=True)
class LoraModulation:
    """A LoRa radio's settings.

    spreading: spreading factor, 7 to 12. bandwidth: Hz. coding: of 4/5 to 4/8 the second number, 5 to 8.
    preamble:  programmed symbols. crc: whether the payload has a checksum. header: whether it is explicit.
    """

    spreading: int
    bandwidth: float
    coding: int = 5
    preamble: int = 8
    crc: bool = True
    header: bool = True

    @property
    def symbol(self) -> float:
        """Seconds of a symbol."""
        return float(2**self.spreading) / self.bandwidth

    def symbols(self, size: int) -> int:
        """Symbols of a payload of so many bytes, preamble not counted."""
        optimized = self.symbol >= LONGEST_SYMBOL
        bits = 8 * size - 4 * self.spreading + 28 + 16 * self.crc - 20 * (not self.header)
        block = 4 * (self.spreading - 2 * optimized)
        return 8 + max(-(-bits // block) * self.coding, 0)

    def airtime(self, size: int) -> float:
        """Seconds on the air of a packet with a payload of so many bytes."""
        return (self.preamble + 4.25 + self.symbols(size)) * self.symbol
