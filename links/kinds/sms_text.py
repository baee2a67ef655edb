"""Bytes as the text of an SMS, and back: as many bytes in 160 characters as an alphabet holds.

Responsible for the alphabets and for packing bytes as one number in their base. Not responsible for carrying
the text (see `sms_link`). Bytes need no packing where a message may carry them as they are: 140 of 8 bits.

A frame of n bytes takes ceil(8 n / log2(base)) characters, a number that tells n. No character is white
space, so that what spaces and line ends a phone or a mailer puts in does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CHARACTERS = 160
"""Of 7 bits, in one message (3GPP TS 23.040)."""

GSM_BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
"""The 128 characters of the basic set, by their 7 bits (3GPP TS 23.038, section 6.2.1)."""


@dataclass(frozen=True)
class SmsAlphabet:
    """Characters that stand for the digits of a number.

    largest: most bytes that 160 of them hold.
    """

    name: str
    characters: str
    largest: int = field(init=False)
    _lengths: dict[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sizes: dict[int, int] = {}  # bytes by number of characters
        size = 0
        while (count := self._count(size)) <= CHARACTERS:
            sizes[count] = size
            size += 1
        object.__setattr__(self, "_lengths", sizes)
        object.__setattr__(self, "largest", size - 1)

    def _count(self, size: int) -> int:
        """Characters that tell all sequences of so many bytes apart."""
        count, room, needed = 0, 1, 1 << 8 * size
        while room < needed:
            room *= len(self.characters)
            count += 1
        return count

    def text(self, data: bytes) -> str:
        """The characters of so many bytes, at most `largest`."""
        if len(data) > self.largest:
            raise ValueError(f"sms: expected at most {self.largest} bytes, found {len(data)}")
        number, digits = int.from_bytes(data, "big"), []
        for _ in range(self._count(len(data))):
            number, digit = divmod(number, len(self.characters))
            digits.append(self.characters[digit])
        return "".join(reversed(digits))

    def data(self, text: str) -> bytes | None:
        """The bytes of a text, whatever white space is in it; None where it is not one of `text`."""
        bare = "".join(text.split())
        if len(bare) not in self._lengths:
            return None
        number = 0
        for character in bare:
            digit = self.characters.find(character)
            if digit < 0:
                return None
            number = number * len(self.characters) + digit
        size = self._lengths[len(bare)]
        return number.to_bytes(size, "big") if number < 1 << 8 * size else None


ALPHABETS = {
    alphabet.name: alphabet
    for alphabet in (
        SmsAlphabet("ascii", "".join(c for c in GSM_BASIC if c.isascii() and c.isprintable() and c != " ")),
        SmsAlphabet("gsm7", "".join(c for c in GSM_BASIC if c.isprintable() and c != " ")),
    )
}
"""ascii: 85 characters that are both of ASCII and of one 7-bit character: 128 bytes, through anything that
carries text. gsm7: the whole basic set but white space and the escape: 139 bytes, of 140, for phones and
services that leave its letters as they are."""
