"""The header of a payload, and the check that covers everything a payload depends on.

Responsible for the first bytes, the optional fields behind them, and refusing each way to be broken. Not
responsible for bodies (see `wire`).

    byte 0   version (2 bits), codec (3 bits), needs prompt, is a delta, has optional fields (1 bit each)
    byte 1   tag: the first byte of the contract's identity; of codecs bound to a model, of its fingerprint
    byte 2-3 check: CRC-16 of all other bytes, XOR a hash of everything the payload depends on (contract,
             prompt ids where it needs them, base payload where it adds to one, and the digest of the text
             that codec predictive must decode to)
    then     reference to the base payload (a delta only, 1 byte), optional fields, body
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from payload.bytesio import Reader
from payload.codecs.prior import model_hash
from payload.contract import Contract
from payload.errors import (
    AnchorRangeError,
    ChecksumError,
    CodecError,
    MalformedPayloadError,
    OversizedPayloadError,
    VersionError,
)
from payload.extras import NO_EXTRAS, Extras
from payload.shared import Base

VERSION = 1
MAX_PAYLOAD_BYTES = 1 << 19
MIN_PAYLOAD_BYTES = 24
"""Every payload without anchors fits into so many."""
HEADER_BYTES = 4

_NEEDS_PROMPT, _DELTA, _EXTRAS = 4, 2, 1


class Codec(IntEnum):
    """The codec of a body; its number is the header's codec field."""

    TEMPLATE_GZIP = 0
    COMPACT = 2
    PREDICTIVE = 3
    PORTABLE = 4

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")

    @property
    def bound(self) -> bool:
        """Whether a payload is for one model in float32 activations (its portable graph) and no other."""
        return self in (Codec.PREDICTIVE, Codec.PORTABLE)


ARITHMETIC_CODED = (Codec.COMPACT, Codec.PREDICTIVE, Codec.PORTABLE)
"""Codecs that may depend on a prompt and on a base payload."""


@dataclass(frozen=True)
class Header:
    """A payload's header and optional fields, and its bytes; the anchors in its body are not decoded.

    tag:      `Contract.tag`, the first 2 hex digits of its identity; where the codec is bound to a model,
              those of its fingerprint (`Predictor.identity`).
    base_ref: for a delta, the reference of the payload it adds to, as 2 hex digits.
    """

    codec: Codec
    tag: str
    needs_prompt: bool
    base_ref: str | None
    extras: Extras
    data: bytes = field(repr=False)
    body: bytes = field(repr=False)


def reference(data: bytes) -> int:
    """The reference of a payload in a delta: one byte of its hash."""
    return hashlib.sha256(data).digest()[0]


def seal(
    contract: Contract,
    codec: Codec,
    body: bytes,
    extras: bytes = b"",
    *,
    prompt_ids: Sequence[int] | None = None,
    base: Base | None = None,
    fingerprint: bytes | None = None,
    digest: bytes = b"",
) -> bytes:
    """A payload of a body and the bytes of its optional fields: adds header and check, tests nothing.

    fingerprint, digest: of the model that the codec is bound to, and for predictive of the decoded text.
    """
    flags = _NEEDS_PROMPT * (prompt_ids is not None) | _DELTA * (base is not None) | _EXTRAS * bool(extras)
    head = bytes([VERSION << 6 | codec << 3 | flags, (fingerprint or bytes.fromhex(contract.tag))[0]])
    tail = (bytes([reference(base.data)]) if base else b"") + extras + body
    check = crc16(head + tail) ^ binding(codec, contract, prompt_ids, base, (fingerprint or b"") + digest)
    return head + check.to_bytes(2, "big") + tail


def peek(data: bytes | Header) -> Header:
    """The header and optional fields of a payload, its check not tested; of a header, itself.

    Raises PayloadError subclasses.
    """
    if isinstance(data, Header):
        return data
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OversizedPayloadError(
            f"payload: expected at most {MAX_PAYLOAD_BYTES} bytes, found {len(data)}; this is not a payload"
        )
    reader = Reader(data)
    first, tag, _, _ = reader.take(HEADER_BYTES, "header")
    version, codec = first >> 6, first >> 3 & 7
    if version != VERSION:
        raise VersionError(
            f"this is not a payload: expected byte 0 of version {VERSION}, found {first:#04x}; "
            "where it is one of a later version, update this software to read it"
        )
    if codec not in list(Codec):
        raise CodecError(
            f"codec: expected {', '.join(f'{each.value} ({each.label})' for each in Codec)}, found {codec} "
            f"in byte 0 ({first:#04x}); update this software to read it"
        )
    if Codec(codec).bound and not first & _NEEDS_PROMPT:
        raise MalformedPayloadError(
            f"header: expected codec {Codec(codec).label} to need its prompt, found byte 0 {first:#04x}"
        )
    if codec not in ARITHMETIC_CODED and first & (_NEEDS_PROMPT | _DELTA):
        raise MalformedPayloadError(
            f"header: expected neither prompt nor base for codec {Codec(codec).label}, "
            f"found byte 0 {first:#04x}"
        )
    base_ref = f"{reader.take(1, 'reference to the base payload')[0]:02x}" if first & _DELTA else None
    extras = Extras.read(reader) if first & _EXTRAS else NO_EXTRAS
    return Header(
        Codec(codec),
        f"{tag:02x}",
        bool(first & _NEEDS_PROMPT),
        base_ref,
        extras,
        data,
        reader.rest(),
    )


def crc16(data: bytes) -> int:
    """CRC-16/CCITT (polynomial 0x1021, start 0xFFFF): detects every burst of at most 16 bits."""
    return binascii.crc_hqx(data, 0xFFFF)


def binding(
    codec: Codec,
    contract: Contract,
    prompt_ids: Sequence[int] | None,
    base: Base | None,
    text: bytes = b"",
) -> int:
    """16 bits that change with all a payload depends on: contract, model file, prompt, base, and `text`: the
    fingerprint of the model that the codec is bound to and, of codec predictive, the decoded text's digest.
    """
    state = hashlib.sha256(bytes.fromhex(contract.identity))
    if codec in (Codec.COMPACT, Codec.PORTABLE):
        state.update(model_hash())
    if prompt_ids is not None:
        if not all(0 <= token < 1 << 32 for token in prompt_ids):
            raise AnchorRangeError(
                "prompt: expected ids of 0 to 2^32 - 1, found others; give the tokenizer's ids"
            )
        state.update(b"P" + b"".join(int(token).to_bytes(4, "little") for token in prompt_ids))
    if base is not None:
        state.update(b"B" + hashlib.sha256(base.data).digest())
    if text:
        state.update(b"W" + text)
    return int.from_bytes(state.digest()[:2], "big")


def expected_check(
    data: bytes,
    contract: Contract,
    prompt_ids: Sequence[int] | None,
    base: Base | None,
    text: bytes = b"",
) -> int:
    """The check that a payload with these bytes should have."""
    bound = binding(Codec(data[0] >> 3 & 7), contract, prompt_ids, base, text)
    return crc16(data[:2] + data[HEADER_BYTES:]) ^ bound


def verify(
    data: bytes,
    contract: Contract,
    prompt_ids: Sequence[int] | None,
    base: Base | None,
    fingerprint: bytes = b"",
) -> None:
    """Raises ChecksumError where the check does not hold."""
    found = int.from_bytes(data[2:HEADER_BYTES], "big")
    expected = expected_check(data, contract, prompt_ids, base, fingerprint)
    if found == expected:
        return
    if prompt_ids is None:
        cause = f"the bytes were changed on their way, or it was made for another contract than {contract}"
        remedy = "fetch it again"
    else:
        cause = "the bytes were changed on their way, or it was made with another prompt than the "
        cause += f"{len(prompt_ids)} ids given, or for another contract than {contract}"
        remedy = "fetch it again and give exactly the prompt it was made with"
    raise ChecksumError(
        f"checksum: expected {expected:04x}, found {found:04x} in bytes 2-3 of {len(data)}: {cause}; {remedy}"
    )
