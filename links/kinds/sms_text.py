"""Bytes as the text of an SMS, and back: as many bytes in 160 characters as an alphabet holds.

Responsible for packing bytes as one number in the base of an alphabet. Not responsible for carrying the text
(see `sms`). Bytes need no packing where a message may carry them as they are: 140 of 8 bits.

A frame of n bytes takes ceil(8 n / log2(85)) characters, a number that tells n. No character is white space,
so that what spaces and line ends a phone or a mailer puts in does no harm.
"""

from __future__ import annotations

CHARACTERS = 160
"""Of 7 bits, in one message (3GPP TS 23.040)."""

ALPHABET = "@$_!\"#%&'()*+,-./0123456789:;<=>?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The 85 characters that are both of ASCII and of the basic set of 7 bits (3GPP TS 23.038, section 6.2.1), in
its order: they pass through anything that carries text."""


def _count(size: int) -> int:
    """Characters that tell all sequences of so many bytes apart."""
    count, room = 0, 1
    while room < 1 << 8 * size:
        room *= len(ALPHABET)
        count += 1
    return count


SIZES = {count: size for size in range(CHARACTERS) if (count := _count(size)) <= CHARACTERS}
"""Bytes by number of characters."""
LARGEST = max(SIZES.values())
"""Bytes that 160 characters hold: 128."""


def text_of(data: bytes) -> str:
    """The characters of so many bytes, at most `LARGEST`."""
    if len(data) > LARGEST:
        raise ValueError(f"sms: expected at most {LARGEST} bytes, found {len(data)}")
    number, digits = int.from_bytes(data, "big"), []
    for _ in range(_count(len(data))):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def data_of(text: str) -> bytes | None:
    """The bytes of a text, whatever white space is in it; None where it is not one of `text_of`."""
    bare = "".join(text.split())
    if len(bare) not in SIZES or set(bare) - set(ALPHABET):
        return None
    number = 0
    for character in bare:
        number = number * len(ALPHABET) + ALPHABET.index(character)
    size = SIZES[len(bare)]
    return number.to_bytes(size, "big") if number < 1 << 8 * size else None
