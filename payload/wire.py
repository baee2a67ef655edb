"""The wire format: header, optional fields, body, checksum. `encode`, `decode` and `peek` live here.

Knows how the parts of a payload lie in a row and how each is refused; SPEC.md is the same in words. Does not
know how a codec writes its body (`template`, `compact`).

    byte 0   version (2 bits), codec (3 bits), needs prompt, is a delta, has optional fields (1 bit each)
    byte 1   contract tag: the first byte of the contract's identity
    byte 2-3 check: CRC-16 of all other bytes, XOR a hash of everything the payload leans on (contract,
             prompt ids where it needs them, base payload where it adds to one)
    then     reference to the base payload (a delta only, 1 byte), optional fields, body
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from payload import compact
from payload.anchors import AnchorSet
from payload.bytesio import Reader
from payload.contract import Contract
from payload.errors import (
    AnchorRangeError,
    BasePayloadError,
    ChecksumError,
    CodecError,
    ContractMismatchError,
    MalformedPayloadError,
    OversizedPayloadError,
    PayloadError,
    PromptRequiredError,
    VersionError,
)
from payload.extras import Extras
from payload.prior import model_hash
from payload.squeeze import gz, ungz, unzstd, zstd
from payload.template import TokenBytes, decode_template, encode_template

VERSION = 1
MAX_PAYLOAD_BYTES = 1 << 19
HEADER_BYTES = 4

_NEEDS_PROMPT, _DELTA, _EXTRAS = 4, 2, 1


class Codec(IntEnum):
    """How a body is written; the number travels in the header's codec field."""

    TEMPLATE_GZIP = 0
    TEMPLATE_ZSTD = 1
    COMPACT = 2

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


AUTO = "auto"
"""Not a codec on the wire: `encode` tries all it can and keeps the smallest."""


class Base(NamedTuple):
    """A payload that both sides hold, and its anchors: what a delta adds to."""

    data: bytes
    anchors: AnchorSet


@dataclass(frozen=True)
class Header:
    """What a payload says about itself before its anchors are read.

    tag:         the contract tag as 2 hex digits; `Contract.identity` starts with it.
    verified:    whether the checksum could be tested. It covers the contract, the prompt and the base as
                 well, so that needs them; where it could be and failed, `peek` has raised.
    base_ref:    for a delta, the reference of the payload it adds to, as 2 hex digits.
    """

    version: int
    codec: Codec
    tag: str
    needs_prompt: bool
    verified: bool
    base_ref: str | None
    prompt: str | None
    session: bytes | None
    step: int
    total_steps: int
    confidences: int
    size: int
    body_bytes: int


def reference(data: bytes) -> int:
    """What a delta calls the payload `data`: one byte of its hash."""
    return hashlib.sha256(data).digest()[0]


def encode(
    anchors: AnchorSet,
    codec: Codec | str = Codec.COMPACT,
    *,
    prompt_ids: Sequence[int] | None = None,
    tokens: TokenBytes | None = None,
    embed_prompt: bool = False,
    base: Base | None = None,
) -> bytes:
    """The payload of an AnchorSet. All its fields travel but `prompt`, which does when `embed_prompt`.

    codec:        a Codec, its label ("template-gzip", "template-zstd", "compact") or "auto" for the smallest.
    prompt_ids:   ids of the prompt, where the reader has them too: makes codec compact smaller, and binds the
                  payload to that prompt. The template codecs have no use for them.
    tokens:       the tokenizer, which the template codecs need. "auto" leaves them out without it.
    base:         write only what the anchors add to this payload (codec compact).

    Raises PayloadError subclasses for anchors that cannot be written so.
    """
    if codec == AUTO:
        if base is not None or tokens is None:
            codec = Codec.COMPACT
        else:
            tried = []
            for each in Codec:
                try:
                    tried.append(
                        encode(anchors, each, prompt_ids=prompt_ids, tokens=tokens, embed_prompt=embed_prompt)
                    )
                except OversizedPayloadError:
                    continue
            return min(tried, key=len)
    codec = _codec(codec)
    if embed_prompt and anchors.prompt is None:
        raise PromptRequiredError(
            "embed_prompt: expected anchors.prompt to hold the prompt's text, found none"
        )
    if base is not None:
        _check_base(anchors, base, codec)
    extras = Extras(
        anchors.prompt if embed_prompt else None,
        anchors.session,
        anchors.step,
        anchors.total_steps,
        anchors.confidence,
    ).to_bytes()
    primed = codec is Codec.COMPACT and prompt_ids is not None
    if codec is Codec.COMPACT:
        body = compact.encode(anchors, prompt_ids or (), base.anchors if base else None)
    else:
        if tokens is None:
            raise PayloadError(f"codec {codec.label}: expected a tokenizer (tokens=...), found none")
        body = encode_template(anchors, tokens, gz if codec is Codec.TEMPLATE_GZIP else zstd)
    data = seal(anchors.contract, codec, body, extras, prompt_ids=prompt_ids if primed else None, base=base)
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OversizedPayloadError(f"payload: expected at most {MAX_PAYLOAD_BYTES} bytes, found {len(data)}")
    return data


def seal(
    contract: Contract,
    codec: Codec,
    body: bytes,
    extras: bytes = b"",
    *,
    prompt_ids: Sequence[int] | None = None,
    base: Base | None = None,
) -> bytes:
    """Header and check around a body and the bytes of its optional fields, whatever they hold."""
    flags = _NEEDS_PROMPT * (prompt_ids is not None) | _DELTA * (base is not None) | _EXTRAS * bool(extras)
    head = bytes([VERSION << 6 | codec << 3 | flags, bytes.fromhex(contract.identity)[0]])
    tail = (bytes([reference(base.data)]) if base else b"") + extras + body
    check = _crc(head + tail) ^ _binding(codec, contract, prompt_ids, base)
    return head + check.to_bytes(2, "big") + tail


def decode(
    data: bytes,
    contract: Contract,
    *,
    prompt_ids: Sequence[int] | None = None,
    tokens: TokenBytes | None = None,
    base: Base | None = None,
) -> AnchorSet:
    """The AnchorSet of a payload; for a delta, the base's anchors and those it adds.

    contract:   of the model that will fill; a payload for another one is refused.
    prompt_ids: the very ids that `encode` was given, where `peek(data).needs_prompt`. A payload that carries
                its prompt as text needs only `tokens`.
    tokens:     the tokenizer, for the template codecs and for a carried prompt.
    base:       the payload a delta adds to.

    Raises the subclass of PayloadError that names what is wrong.
    """
    header, reader, extras = _open(data)
    if header.tag != contract.identity[:2]:
        raise ContractMismatchError(
            f"contract: expected tag {contract.identity[:2]} of contract {contract}, found a payload with "
            f"tag {header.tag}; use the model bundle that it was made for, or ask for a payload for this one"
        )
    if header.base_ref is not None:
        if base is None:
            raise BasePayloadError(
                f"base: expected the payload with reference {header.base_ref} that this one adds to, found "
                "none; decode the payloads of a stream in order and pass the one before (base=...)"
            )
        if header.base_ref != f"{reference(base.data):02x}":
            raise BasePayloadError(
                f"base: expected the payload with reference {header.base_ref} that this one adds to, found "
                f"{reference(base.data):02x}; decode the payloads of a stream in order"
            )
    if header.needs_prompt and prompt_ids is None:
        if header.prompt is None:
            raise PromptRequiredError(
                "prompt: expected the ids of the prompt that the payload was made with, found none; "
                "give the prompt beside the payload"
            )
        if tokens is None:
            raise PromptRequiredError(
                "prompt: expected its ids (prompt_ids=...) or a tokenizer (tokens=...) to read the text that "
                "the payload carries, found neither"
            )
        prompt_ids = tokens.encode(header.prompt)
    delta = header.base_ref is not None
    _verify(data, contract, prompt_ids if header.needs_prompt else None, base if delta else None)
    if header.codec is Codec.COMPACT:
        primed = prompt_ids if header.needs_prompt and prompt_ids is not None else ()
        positions, ids, canvas, length = compact.decode(
            reader.rest(), contract, primed, base.anchors if delta and base else None
        )
    else:
        if tokens is None:
            raise PayloadError(f"codec {header.codec.label}: expected a tokenizer (tokens=...), found none")
        unsqueeze = ungz if header.codec is Codec.TEMPLATE_GZIP else unzstd
        positions, ids, canvas, length = decode_template(reader.rest(), contract, tokens, unsqueeze)
    return AnchorSet(
        positions,
        ids,
        canvas,
        contract,
        length,
        extras.step,
        extras.total_steps,
        extras.prompt,
        extras.session,
        extras.confidence,
    )


def peek(
    data: bytes,
    contract: Contract | None = None,
    *,
    prompt_ids: Sequence[int] | None = None,
    base: Base | None = None,
) -> Header:
    """The header and optional fields of a payload, without its anchors.

    The checksum is tested where what it covers is given: the contract, and the prompt ids and the base where
    the payload leans on them. Raises PayloadError subclasses.
    """
    header, _, _ = _open(data)
    if contract is None or header.tag != contract.identity[:2]:
        return header
    if (header.needs_prompt and prompt_ids is None) or (header.base_ref is not None and base is None):
        return header
    delta = header.base_ref is not None
    _verify(data, contract, prompt_ids if header.needs_prompt else None, base if delta else None)
    return Header(**{**vars(header), "verified": True})


def _codec(codec: Codec | str) -> Codec:
    if isinstance(codec, Codec):
        return codec
    for each in Codec:
        if codec == each.label:
            return each
    raise CodecError(
        f"codec: expected one of {', '.join(each.label for each in Codec)} or {AUTO}, found {codec!r}"
    )


def _open(data: bytes) -> tuple[Header, Reader, Extras]:
    """Header and optional fields; the reader stands at the body."""
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OversizedPayloadError(
            f"payload: expected at most {MAX_PAYLOAD_BYTES} bytes, found {len(data)}; this is not a payload"
        )
    reader = Reader(data)
    first, tag, _, _ = reader.take(HEADER_BYTES, "header")
    version, codec = first >> 6, first >> 3 & 7
    if version != VERSION:
        raise VersionError(
            f"version: expected {VERSION}, found {version} in byte 0 ({first:#04x}); "
            + ("update this software to read it" if version > VERSION else "this is not a payload")
        )
    if codec not in list(Codec):
        raise CodecError(
            f"codec: expected {', '.join(f'{each.value} ({each.label})' for each in Codec)}, found {codec} "
            f"in byte 0 ({first:#04x}); update this software to read it"
        )
    if codec != Codec.COMPACT and first & (_NEEDS_PROMPT | _DELTA):
        raise MalformedPayloadError(
            f"header: expected neither prompt nor base for codec {Codec(codec).label}, "
            f"found byte 0 {first:#04x}"
        )
    base_ref = f"{reader.take(1, 'reference to the base payload')[0]:02x}" if first & _DELTA else None
    extras = Extras.read(reader) if first & _EXTRAS else Extras()
    header = Header(
        version=version,
        codec=Codec(codec),
        tag=f"{tag:02x}",
        needs_prompt=bool(first & _NEEDS_PROMPT),
        verified=False,
        base_ref=base_ref,
        prompt=extras.prompt,
        session=extras.session,
        step=extras.step,
        total_steps=extras.total_steps,
        confidences=len(extras.confidence),
        size=len(data),
        body_bytes=reader.left,
    )
    return header, reader, extras


def _crc(data: bytes) -> int:
    """CRC-16/CCITT (polynomial 0x1021, start 0xFFFF): notices every burst of at most 16 bits for certain."""
    return binascii.crc_hqx(data, 0xFFFF)


def _binding(codec: Codec, contract: Contract, prompt_ids: Sequence[int] | None, base: Base | None) -> int:
    """16 bits that change with all a payload leans on: contract, model file, prompt, base."""
    state = hashlib.sha256(bytes.fromhex(contract.identity))
    if codec is Codec.COMPACT:
        state.update(model_hash())
    if prompt_ids is not None:
        if not all(0 <= token < 1 << 32 for token in prompt_ids):
            raise AnchorRangeError(
                "prompt: expected ids of 0 to 2^32 - 1, found others; give the tokenizer's ids"
            )
        state.update(b"P" + b"".join(int(token).to_bytes(4, "little") for token in prompt_ids))
    if base is not None:
        state.update(b"B" + hashlib.sha256(base.data).digest())
    return int.from_bytes(state.digest()[:2], "big")


def _verify(data: bytes, contract: Contract, prompt_ids: Sequence[int] | None, base: Base | None) -> None:
    found = int.from_bytes(data[2:HEADER_BYTES], "big")
    expected = _crc(data[:2] + data[HEADER_BYTES:]) ^ _binding(
        Codec(data[0] >> 3 & 7), contract, prompt_ids, base
    )
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


def _check_base(anchors: AnchorSet, base: Base, codec: Codec) -> None:
    if codec is not Codec.COMPACT:
        raise CodecError(f"a payload that adds to another one: expected codec compact, found {codec.label}")
    if base.anchors.contract.identity != anchors.contract.identity:
        raise ContractMismatchError(
            f"base: expected contract {anchors.contract}, found {base.anchors.contract}"
        )
    if base.anchors.canvas != anchors.canvas:
        raise AnchorRangeError(f"base: expected a canvas of {anchors.canvas}, found {base.anchors.canvas}")
    now = dict(zip(anchors.positions, anchors.ids, strict=True))
    for position, token in zip(base.anchors.positions, base.anchors.ids, strict=True):
        if now.get(position) != token:
            raise AnchorRangeError(
                f"base: committed tokens stay; expected id {token} at position {position}, "
                f"found {now.get(position)}"
            )
    if base.anchors.length is not None and anchors.length != base.anchors.length:
        raise AnchorRangeError(
            f"base: a known length stays; expected {base.anchors.length}, found {anchors.length}"
        )
