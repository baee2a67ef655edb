"""An arithmetic (range) coder over integers: intervals of a total in, bytes out, and back.

Knows nothing of what the intervals mean. The state is an interval of a 56-bit number line that grows by a
byte whenever it is narrower than 2^48; all arithmetic is exact, so that every machine writes the same bytes.
The message ends with the shortest bytes that lie in the last interval; a reader takes zeros after them.
"""

from __future__ import annotations

from collections.abc import Sequence

from payload.errors import MalformedPayloadError

_TOP_BITS = 56
_LOW = 1 << 48
MAX_TOTAL = 1 << 44
"""An interval's total must stay below this, so that precision remains."""


class RangeEncoder:
    """Collects intervals; `finish` gives the bytes."""

    def __init__(self) -> None:
        self._low = 0
        self._range = 1 << _TOP_BITS
        self._bits = _TOP_BITS

    def put(self, start: int, size: int, total: int) -> None:
        """Narrow to [start, start + size) of `total`. size >= 1, start + size <= total < MAX_TOTAL."""
        unit = self._range // total
        self._low += start * unit
        self._range = size * unit
        while self._range < _LOW:
            self._range <<= 8
            self._low <<= 8
            self._bits += 8

    def finish(self) -> bytes:
        """The shortest bytes that, zeros after them, lie in the interval."""
        for bits in range(0, self._bits + 8, 8):
            unused = self._bits - bits
            if unused < 0:
                return (self._low << -unused).to_bytes(bits // 8, "big")
            value = (self._low + (1 << unused) - 1) >> unused
            if value << unused < self._low + self._range:
                return value.to_bytes(bits // 8, "big")
        raise AssertionError("a non-empty interval holds its own lower end")


class RangeDecoder:
    """Reads intervals back from bytes, and zeros after their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = _TOP_BITS // 8
        self._code = int.from_bytes(data[: self._at].ljust(self._at, b"\0"), "big")
        self._range = 1 << _TOP_BITS

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def unread(self) -> int:
        """Bytes that no interval has looked at: more than none at the end of a message is an error."""
        return max(0, len(self._data) - self._at)

    def target(self, total: int) -> int:
        """Where in [0, total) the message stands; follow with `take` of the interval that holds it.

        Raises MalformedPayloadError for a place that the division leaves over: no encoder goes there.
        """
        target = self._code // (self._range // total)
        if target >= total:
            raise MalformedPayloadError(
                f"body: expected a value below {total} at byte {self._at}, found {target}: never written"
            )
        return target

    def take(self, start: int, size: int, total: int) -> None:
        unit = self._range // total
        self._code -= start * unit
        self._range = size * unit
        while self._range < _LOW:
            byte = self._data[self._at] if self._at < len(self._data) else 0
            self._at += 1
            self._code = self._code << 8 | byte
            self._range <<= 8


class Coder:
    """One grammar for both directions: every method codes a value, or reads one and returns it.

    Written so, the model of a codec exists once: `Coder(None)` encodes what it is given, `Coder(data)`
    ignores what it is given and reads. A decoder's values are what hostile bytes say, within the ranges
    asked for.
    """

    def __init__(self, data: bytes | None) -> None:
        self.decoder = None if data is None else RangeDecoder(data)
        self.encoder = RangeEncoder() if data is None else None

    def uniform(self, value: int, total: int) -> int:
        """A value in [0, total), all equally likely."""
        if self.encoder:
            self.encoder.put(value, 1, total)
            return value
        assert self.decoder
        value = self.decoder.target(total)
        self.decoder.take(value, 1, total)
        return value

    def choice(self, value: int, sizes: Sequence[int]) -> int:
        """An index into `sizes`, as likely as its share of their sum."""
        total = sum(sizes)
        if self.encoder:
            self.encoder.put(sum(sizes[:value]), sizes[value], total)
            return value
        assert self.decoder
        target, start = self.decoder.target(total), 0
        for index, size in enumerate(sizes):
            if target < start + size:
                self.decoder.take(start, size, total)
                return index
            start += size
        raise AssertionError("a target lies below its total")

    def number(self, value: int, sizes: Sequence[int]) -> int:
        """A number >= 0: bit length of value + 1, less one, by `choice`; then the bits below the top one."""
        bits = self.choice((value + 1).bit_length() - 1, sizes)
        code = 1
        for at in range(bits, 0, -16):
            step = min(16, at)
            part = (value + 1) >> (at - step) & ((1 << step) - 1)
            code = code << step | self.uniform(part if self.encoder else 0, 1 << step)
        return code - 1
