"""The wire format: AnchorSets to payloads and back. `encode` and `decode` live here.

Knows which codec writes a body and what it needs for that; SPEC.md is the same in words. Does not know the
header (see `header`) nor how a codec writes (`template`, `compact`, `predictive`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from payload.anchors import AnchorSet
from payload.codecs import compact, predictive
from payload.codecs.compression import gz, ungz, unzstd, zstd
from payload.codecs.predictive import GUARD, Predictor, Step
from payload.codecs.template import Shape, TokenBytes, decode_template, encode_template
from payload.contract import Contract
from payload.errors import (
    AnchorRangeError,
    BasePayloadError,
    CodecError,
    ContractMismatchError,
    FingerprintError,
    MalformedPayloadError,
    OversizedPayloadError,
    PayloadError,
    PromptRequiredError,
)
from payload.extras import Extras
from payload.header import (
    HEADER_BYTES,
    IN_INTEGERS,
    MAX_PAYLOAD_BYTES,
    Base,
    Codec,
    Header,
    open_payload,
    reference,
    seal,
    sum_of,
    verify,
)

__all__ = ["AUTO", "MAX_PAYLOAD_BYTES", "Base", "Codec", "Decoding", "Header", "decode", "encode", "seal"]

AUTO = "auto"
"""Not a codec on the wire: `encode` tries all it can and keeps the smallest."""


def encode(
    anchors: AnchorSet,
    codec: Codec | str = Codec.COMPACT,
    *,
    prompt_ids: Sequence[int] | None = None,
    tokens: TokenBytes | None = None,
    embed_prompt: bool = False,
    base: Base | None = None,
    predictor: Predictor | None = None,
    guard: float = GUARD,
    draft: Sequence[int] = (),
) -> bytes:
    """The payload of an AnchorSet. All its fields travel but `prompt`, which does when `embed_prompt`.

    codec:        a Codec, its label ("template-gzip", "compact"...) or "auto" for the smallest.
    prompt_ids:   ids of the prompt, where the reader has them too: makes codec compact smaller, and binds the
                  payload to that prompt. The template codecs have no use for them.
    tokens:       the tokenizer, which the template codecs need. "auto" leaves them out without it.
    base:         write only what the anchors add to this payload (codecs compact and predictive).
    predictor:    the device's model behind this prompt, which codec predictive needs. "auto" leaves that out
                  without it.
    guard, draft: see `predictive.encode`.

    Raises PayloadError subclasses for anchors that cannot be written so.
    """
    if codec == AUTO:
        usable = {Codec.COMPACT: True, Codec.PREDICTIVE: predictor is not None}
        tried = []
        for each in Codec:
            if usable.get(each, base is None and tokens is not None):
                with suppress(OversizedPayloadError):
                    tried.append(
                        encode(
                            anchors,
                            each,
                            prompt_ids=prompt_ids,
                            tokens=tokens,
                            embed_prompt=embed_prompt,
                            base=base,
                            predictor=predictor,
                            guard=guard,
                            draft=draft,
                        )
                    )
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
    old = base.anchors if base else None
    outcome = b""
    primed = prompt_ids if codec in IN_INTEGERS else None
    if codec is Codec.PREDICTIVE:
        predictor = _needed(predictor, prompt_ids)
        primed = predictor.prompt_ids
        body, outcome = predictive.encode(anchors, predictor, old, guard, draft)
    elif codec is Codec.COMPACT:
        body = compact.encode(anchors, prompt_ids or (), old)
    else:
        if tokens is None:
            raise PayloadError(f"codec {codec.label}: expected a tokenizer (tokens=...), found none")
        body = encode_template(anchors, tokens, gz if codec is Codec.TEMPLATE_GZIP else zstd)
    data = seal(
        anchors.contract,
        codec,
        body,
        extras,
        prompt_ids=primed,
        base=base,
        ranking=predictor.identity if codec is Codec.PREDICTIVE and predictor else None,
        outcome=outcome,
    )
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OversizedPayloadError(f"payload: expected at most {MAX_PAYLOAD_BYTES} bytes, found {len(data)}")
    return data


def decode(
    data: bytes,
    contract: Contract,
    *,
    prompt_ids: Sequence[int] | None = None,
    tokens: TokenBytes | None = None,
    base: Base | None = None,
    predictor: Predictor | None = None,
) -> AnchorSet:
    """The AnchorSet of a payload; for a delta, the base's anchors and those it adds.

    contract:   of the model that will fill; a payload for another one is refused.
    prompt_ids: the very ids that `encode` was given, where `peek(data).needs_prompt`. A payload that carries
                its prompt as text needs only `tokens`.
    tokens:     the tokenizer, for the template codecs and for a carried prompt.
    base:       the payload a delta adds to.
    predictor:  the device's model behind this prompt, for codec predictive. See `Decoding` for the tokens as
                they come.

    Raises the subclass of PayloadError that names what is wrong.
    """
    header, reader, extras = open_payload(data)
    if header.codec is Codec.PREDICTIVE:
        decoding = Decoding(data, contract, predictor, prompt_ids=prompt_ids, base=base)
        for _ in decoding:
            pass
        return decoding.anchors
    if header.tag != contract.identity[:2]:
        raise ContractMismatchError(
            f"contract: expected tag {contract.identity[:2]} of contract {contract}, found a payload with "
            f"tag {header.tag}; use the model bundle that it was made for, or ask for a payload for this one"
        )
    base = _right_base(header, base)
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
    verify(data, contract, prompt_ids if header.needs_prompt else None, base)
    if header.codec is Codec.COMPACT:
        primed = prompt_ids if header.needs_prompt and prompt_ids is not None else ()
        shape = compact.decode(reader.rest(), contract, primed, base.anchors if base else None)
    else:
        if tokens is None:
            raise PayloadError(f"codec {header.codec.label}: expected a tokenizer (tokens=...), found none")
        unsqueeze = ungz if header.codec is Codec.TEMPLATE_GZIP else unzstd
        shape = decode_template(reader.rest(), contract, tokens, unsqueeze)
    return _anchor_set(shape, contract, extras)


class Decoding:
    """A predictive payload being read: iterate over it for the tokens of the answer, then ask for `anchors`.

    The tokens come as they are found, one pass of the model each. Only when the last one has come is it known
    whether all of them are right: then the iteration ends, or it raises FingerprintError, and what it gave
    is to be taken back. Arguments as of `decode`.
    """

    def __init__(
        self,
        data: bytes,
        contract: Contract,
        predictor: Predictor | None,
        *,
        prompt_ids: Sequence[int] | None = None,
        base: Base | None = None,
    ) -> None:
        """Raises PayloadError subclasses for what can be told without the model."""
        header, reader, self._extras = open_payload(data)
        if header.codec is not Codec.PREDICTIVE:
            raise CodecError(
                f"codec: expected {Codec.PREDICTIVE.label}, found {header.codec.label}; use decode"
            )
        self._predictor = _needed(predictor, prompt_ids)
        if header.tag != self._predictor.identity.hex()[:2]:
            raise FingerprintError(
                f"ranking: expected tag {self._predictor.identity.hex()[:2]} of this model, found a payload "
                f"with tag {header.tag}; use the bundle and variant it was made with, or ask for compact"
            )
        self._data, self._contract = data, contract
        self._base = _right_base(header, base)
        self._walk = predictive.Walk(
            self._predictor, contract.vocab_size, self._base.anchors if self._base else None, reader.rest()
        )
        self._anchors: AnchorSet | None = None

    def __iter__(self) -> Iterator[Step]:
        """Raises FingerprintError, and what the predictor does."""
        try:
            yield from self._walk.steps()
        except (MalformedPayloadError, AnchorRangeError) as error:
            # Where the model's guesses are others, what was written with them makes no sense: it says so here
            # or in the check.
            raise FingerprintError(_not_the_same(str(error))) from None
        found, expected = int.from_bytes(self._data[2:HEADER_BYTES], "big"), self._expected()
        if found != expected:
            raise FingerprintError(
                _not_the_same(f"expected check {expected:04x}, found {found:04x} in bytes 2-3")
            )
        self._anchors = _anchor_set(self._walk.shape, self._contract, self._extras)

    @property
    def anchors(self) -> AnchorSet:
        """What the payload held, once the iteration has ended."""
        if self._anchors is None:
            raise PayloadError("decoding: expected to be iterated to its end first, found it unfinished")
        return self._anchors

    def _expected(self) -> int:
        leans_on = self._predictor.identity + self._walk.digest
        return sum_of(self._data, self._contract, self._predictor.prompt_ids, self._base, leans_on)


def _not_the_same(what: str) -> str:
    return (
        f"ranking: {what}: the model's guesses are not those it was written with (another prompt, or a "
        "processor whose numbers differ by more than the guard), or its bytes were changed on their way; "
        "ask for codec compact"
    )


def _needed(predictor: Predictor | None, prompt_ids: Sequence[int] | None) -> Predictor:
    """The predictor, which must be there and stand behind the prompt, where that is given."""
    if predictor is None:
        raise FingerprintError(
            f"codec {Codec.PREDICTIVE.label}: expected the device's model (predictor=...), found none; "
            "use edge_runtime, or codec compact"
        )
    if prompt_ids is not None and list(prompt_ids) != list(predictor.prompt_ids):
        raise PayloadError(
            f"predictor: expected one for the prompt of {len(prompt_ids)} ids given, found one for "
            f"another of {len(predictor.prompt_ids)} ids"
        )
    return predictor


def _right_base(header: Header, base: Base | None) -> Base | None:
    """The base where the payload is a delta, else None; raises BasePayloadError where it is not the one."""
    if header.base_ref is None:
        return None
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
    return base


def _anchor_set(shape: Shape, contract: Contract, extras: Extras) -> AnchorSet:
    positions, ids, canvas, length = shape
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


def _codec(codec: Codec | str) -> Codec:
    if isinstance(codec, Codec):
        return codec
    for each in Codec:
        if codec == each.label:
            return each
    raise CodecError(
        f"codec: expected one of {', '.join(each.label for each in Codec)} or {AUTO}, found {codec!r}"
    )


def _check_base(anchors: AnchorSet, base: Base, codec: Codec) -> None:
    if codec not in IN_INTEGERS:
        raise CodecError(
            f"a payload that adds to another one: expected codec compact or predictive, found {codec.label}"
        )
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
