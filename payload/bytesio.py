"""Bounded reading of bytes and LEB128 varints.

Responsible for a cursor that never reads past the end, and for errors that name the field that was read. Not
responsible for what the bytes mean.
"""

from __future__ import annotations

from payload.errors import MalformedPayloadError, TruncatedPayloadError

_MAX_VARINT_BYTES = 5


def varint(value: int) -> bytes:
    """Unsigned LEB128: 7 bits per byte, least significant first, high bit set on all but the last byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """A cursor over immutable bytes that never reads past their end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return len(self.data) - self.at

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes. Raises TruncatedPayloadError where there are fewer."""
        if count > self.left:
            raise TruncatedPayloadError(
                f"{what}: expected {count} bytes at byte {self.at}, found {self.left}; "
                "the payload was cut short: fetch it again"
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def rest(self) -> bytes:
        return self.take(self.left, "the rest")

    def varint(self, what: str, most: int) -> int:
        """An unsigned LEB128 integer of at most `most`, in its shortest form.

        Raises MalformedPayloadError or TruncatedPayloadError.
        """
        start, value = self.at, 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                if byte == 0 and index > 0:
                    raise MalformedPayloadError(
                        f"{what}: expected the shortest form of an integer at byte {start}, found padding"
                    )
                if value > most:
                    raise MalformedPayloadError(
                        f"{what}: expected at most {most} at byte {start}, found {value}"
                    )
                return value
        raise MalformedPayloadError(
            f"{what}: expected an integer of at most {_MAX_VARINT_BYTES} bytes at byte {start}, found more"
        )
