"""A range coder (arithmetic coding) in integers: intervals of a total to bytes, and back.

Responsible for exact arithmetic, so that every machine writes the same bytes. Not responsible for what the
intervals mean. The state is an interval of a 56-bit number line that is renormalised by a byte whenever it is
narrower than 2^48. The message ends with the shortest bytes that lie in the last interval; a reader takes
zeros after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from payload.errors import MalformedPayloadError

_TOP_BITS = 56
_LOW = 1 << 48
MAX_TOTAL = 1 << 44
"""The total of an interval must stay below this to keep the precision."""


class Bound(NamedTuple):
    """A body of n bytes codes at most `free` + `per_byte` * n tokens: bounds reading time."""

    free: int
    per_byte: int

    def most(self, size: int) -> int:
        """Most tokens of a body of so many bytes."""
        return self.free + self.per_byte * size

    def least(self, tokens: int) -> int:
        """Bytes that a body of so many tokens must have; padding zeros make them up."""
        return max(0, -(-(tokens - self.free) // self.per_byte))


_ANY = Bound(0, 1)
"""Of bodies whose tokens nobody counts."""


class RangeEncoder:
    """Encodes intervals; `finish` gives the bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._low = 0
        self._range = 1 << _TOP_BITS

    def put(self, start: int, size: int, total: int) -> None:
        """Narrow to [start, start + size) of `total`. size >= 1, start + size <= total < MAX_TOTAL."""
        unit = self._range // total
        self._low += start * unit
        self._range = size * unit
        while self._range < _LOW:
            self._write()
            self._low = (self._low & (_LOW - 1)) << 8
            self._range <<= 8

    def _write(self) -> None:
        """Write the top byte of the lower end; what exceeds it is carried into the bytes before."""
        top = self._low >> _TOP_BITS - 8
        at = len(self._bytes)
        self._bytes.append(top & 0xFF)
        while top > 0xFF:
            at -= 1
            top = self._bytes[at] + 1
            self._bytes[at] = top & 0xFF

    def finish(self) -> bytes:
        """The shortest bytes that, followed by zeros, lie in the interval; nothing can be put after."""
        # Of multiples of 2^56 the interval may hold one, of 2^48 it always does.
        for bits in (_TOP_BITS, _TOP_BITS - 8):
            lowest = -(-self._low >> bits) << bits
            if lowest < self._low + self._range:
                break
        self._low = lowest
        self._write()
        return bytes(self._bytes.rstrip(b"\0"))


class RangeDecoder:
    """Decodes intervals from bytes, and from zeros after their end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = _TOP_BITS // 8
        self._code = int.from_bytes(data[: self.at].ljust(self.at, b"\0"), "big")
        self._range = 1 << _TOP_BITS

    def target(self, total: int) -> int:
        """The value in [0, total) that the next interval holds; follow with `take` of that interval.

        Raises MalformedPayloadError in the remainder of the division, which no encoder writes.
        """
        target = self._code // (self._range // total)
        if target >= total:
            raise MalformedPayloadError(
                f"body: expected a value below {total} at byte {self.at}, found {target}: never written"
            )
        return target

    def take(self, start: int, size: int, total: int) -> None:
        """Narrow to [start, start + size) of `total`."""
        unit = self._range // total
        self._code -= start * unit
        self._range = size * unit
        while self._range < _LOW:
            byte = self.data[self.at] if self.at < len(self.data) else 0
            self.at += 1
            self._code = self._code << 8 | byte
            self._range <<= 8


class Coder:
    """One grammar for both directions: every method codes a value, or reads one and returns it.

    So the model of a codec exists once: `Coder(None)` encodes the values it is given, `Coder(data)` ignores
    them and decodes. Decoded values may come from hostile bytes, but lie in the ranges that the calls state.
    """

    def __init__(self, data: bytes | None, bound: Bound = _ANY) -> None:
        self.decoder = None if data is None else RangeDecoder(data)
        self.encoder = RangeEncoder() if data is None else None
        self._bound = bound
        self._tokens = 0

    def count(self) -> None:
        """Counts a token; raises MalformedPayloadError where a body that is read is too short for it."""
        self._tokens += 1
        most = self._bound.most(len(self.decoder.data)) if self.decoder else self._tokens
        if self._tokens > most:
            raise MalformedPayloadError(f"body: expected at most {most} tokens in its bytes, found more")

    def finish(self) -> bytes:
        """The bytes of a body that was written."""
        assert self.encoder
        return self.encoder.finish().ljust(self._bound.least(self._tokens), b"\0")

    def check_end(self) -> None:
        """Refuses bytes behind a body that was read, which do not change what it says."""
        assert self.decoder
        data, read = self.decoder.data, self.decoder.at
        if len(data) > self._bound.least(self._tokens) and (len(data) > read or data[-1:] == b"\0"):
            raise MalformedPayloadError(f"body: expected its end after {read} bytes, found {len(data)}")

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
        """An index into `sizes`, each with a probability of its share of their sum."""
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
