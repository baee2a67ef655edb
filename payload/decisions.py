"""Decisions on the wire: the probabilities of a form's options in a few bytes (SPEC.md, "Decisions").

A distribution is coded by breaking off its likeliest option, then the likeliest of the rest: an index, and
the share of what is left, in steps of equal angle (asin of its root), each of which is worth as much. What
remains is spread evenly. Responsible for these bytes. Not responsible for forms or for probabilities.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from payload.codecs.range_coder import Coder
from payload.errors import ChecksumError, MalformedPayloadError, PayloadError, VersionError
from payload.header import crc16

MARK = 0xD0
HEAD_BYTES = 4
"""As of a payload: what it is, of whom, and a check."""
STEPS = (14, 8, 4)
"""Levels of the share of the first, second and third option that is broken off."""
LITTLE = 0.01
"""A probability that is left and below this is not broken further."""


def encode_decisions(
    form: bytes, text: str, sizes: Sequence[int], probabilities: Mapping[int, Sequence[float]]
) -> bytes:
    """The bytes of some questions' distributions.

    form: identity of the form. text: what it is asked about. sizes: number of options of each question.
    probabilities: of the questions answered, by index, each summing to 1.
    """
    for at, found in probabilities.items():
        size = sizes[at] if 0 <= at < len(sizes) else None
        if len(found) != size or not math.isclose(sum(found), 1, abs_tol=1e-3):
            raise PayloadError(f"question {at}: expected probabilities of its options, found {found!r:.80}")
    partly, coder = len(probabilities) < len(sizes), Coder(None)
    _code_all(coder, sizes, partly, probabilities)
    head, body = bytes([MARK | partly]) + form[:1], coder.finish()
    return head + _check(form, text, head + body) + body


def decode_decisions(data: bytes, form: bytes, text: str, sizes: Sequence[int]) -> dict[int, list[float]]:
    """The distributions by question; arguments as of `encode_decisions`. Raises PayloadError subclasses."""
    head, body = data[:2], data[HEAD_BYTES:]
    most = HEAD_BYTES + 4 * len(sizes) + 8
    if not HEAD_BYTES <= len(data) <= most:
        raise MalformedPayloadError(f"decisions: expected {HEAD_BYTES} to {most} bytes, found {len(data)}")
    if head[0] & 0xFE != MARK:
        raise VersionError(f"decisions: expected byte 0 of {MARK:#04x}, found {head[0]:#04x}")
    if head[1:] != form[:1] or data[2:HEAD_BYTES] != _check(form, text, head + body):
        raise ChecksumError(
            f"decisions: expected those of form {form[:1].hex()}.. about this text, found others, of form "
            f"{head[1:].hex()}..; both sides need the same schema and the same text"
        )
    coder = Coder(body)
    found = _code_all(coder, sizes, bool(head[0] & 1), None)
    coder.check_end()
    return found


def _code_all(
    coder: Coder, sizes: Sequence[int], partly: bool, exact: Mapping[int, Sequence[float]] | None
) -> dict[int, list[float]]:
    """Codes the distributions, or reads them where `exact` is None; returns them as they are read."""
    found = {}
    for at, size in enumerate(sizes):
        if not partly or coder.uniform(int(exact is not None and at in exact), 2):
            found[at] = _code(coder, size, None if exact is None else exact[at])
    return found


def _code(coder: Coder, size: int, exact: Sequence[float] | None) -> list[float]:
    """Codes one distribution, or reads it; returns it as it is read."""
    left, mass = list(range(size)), 1.0
    found = [0.0] * size
    for steps in STEPS if size <= 4 else STEPS[:2]:
        if len(left) == 1 or mass < LITTLE:
            break
        least = math.asin(math.sqrt(1 / len(left)))
        width = (math.pi / 2 - least) / steps
        place = level = 0
        if exact:
            rest = [exact[option] for option in left]
            place = rest.index(max(rest))
            share = min(1.0, rest[place] / sum(rest)) if sum(rest) > 0 else 1.0
            level = min(steps - 1, max(0, int((math.asin(math.sqrt(share)) - least) / width)))
        place = coder.uniform(place, len(left))
        share = math.sin(least + (coder.uniform(level, steps) + 0.5) * width) ** 2
        found[left.pop(place)] = mass * share
        mass *= 1 - share
    for option in left:
        found[option] = mass / len(left)
    return found


def _check(form: bytes, text: str, data: bytes) -> bytes:
    bound = int.from_bytes(hashlib.sha256(form + text.encode("utf-8")).digest()[:2], "big")
    return (crc16(data) ^ bound).to_bytes(2, "big")
