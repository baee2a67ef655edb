"""The wire format: `encode` an AnchorSet to a payload, `decode` it back (SPEC.md).

Responsible for choosing the codec of a body and for giving it what it needs. Not responsible for the header
(see `header`) nor for the bodies (see `codecs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from payload.anchors import AnchorSet
from payload.codecs import compact, predictive
from payload.codecs.predictive import TOLERANCE, DecodedToken, Predictor
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
from payload.extras import NO_EXTRAS, Extras
from payload.header import (
    ARITHMETIC_CODED,
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Codec,
    Header,
    expected_check,
    peek,
    reference,
    seal,
    verify,
)
from payload.shared import Base, Shared

AUTO = "auto"
"""An encoder's choice, not a codec on the wire: `encode` tries every usable codec and keeps the smallest."""


def encode(
    anchors: AnchorSet,
    shared: Shared,
    codec: Codec | str = Codec.COMPACT,
    extras: Extras = NO_EXTRAS,
    *,
    tolerance: float = TOLERANCE,
    draft: Sequence[int] = (),
) -> bytes:
    """The payload of an AnchorSet.

    shared:    what the reader holds too. With `prompt_ids` codec compact is smaller and bound to that prompt;
               with `base` only what the anchors add to it is written; codec template-gzip needs `tokens`,
               codecs predictive and portable need `predictor`.
    codec:     a Codec, its label ("template-gzip", "compact"...) or "auto": the smallest of those for which
               `shared` holds what they need; portable, which says of compact what decodes it, is no choice.
    extras:    optional fields to carry.
    tolerance, draft: for codec predictive, see `predictive.encode`.

    Raises PayloadError subclasses for anchors that cannot be written so.
    """
    if codec == AUTO:
        written, oversized = [], None
        for each in _usable(shared):
            try:
                written.append(encode(anchors, shared, each, extras, tolerance=tolerance, draft=draft))
            except OversizedPayloadError as error:
                oversized = error
        if not written and oversized:
            raise oversized
        return min(written, key=len)
    codec = _codec(codec)
    extras.check(anchors)
    if anchors.contract != shared.contract:
        raise ContractMismatchError(
            f"contract: expected anchors of contract {shared.contract}, found those of {anchors.contract}"
        )
    base = shared.base
    if base is not None:
        _check_base(anchors, base, codec)
    old = base.anchors if base else None
    primed, fingerprint, digest = shared.prompt_ids, None, b""
    if codec.bound:
        predictor = _predictor(shared, codec)
        primed, fingerprint = predictor.prompt_ids, predictor.identity
    if codec is Codec.PREDICTIVE:
        body, digest = predictive.encode(anchors, predictor, old, tolerance, draft)
    elif codec in ARITHMETIC_CODED:
        body = compact.encode(anchors, primed or (), old)
    else:
        primed, body = None, encode_template(anchors, _tokens(shared, codec))
    data = seal(
        anchors.contract,
        codec,
        body,
        extras.to_bytes(),
        prompt_ids=primed,
        base=base,
        fingerprint=fingerprint,
        digest=digest,
    )
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OversizedPayloadError(f"payload: expected at most {MAX_PAYLOAD_BYTES} bytes, found {len(data)}")
    return data


def decode(data: bytes | Header, shared: Shared) -> AnchorSet:
    """The AnchorSet of a payload, or of its header; for a delta, the base's anchors and those it adds.

    shared: what the writer held. A payload for another contract than `shared.contract` is refused. Where
            `peek(data).needs_prompt`, `prompt_ids` must be the very ids that the writer used: those of the
            prompt in the chat template. A payload that carries the prompt's text (`peek(data).extras.prompt`)
            needs them as well, for the text alone says nothing of the template. `tokens` is for codec
            template-gzip, `base` for a delta, `predictor` for codecs predictive and portable; see `Decoding`
            for the tokens of a predictive payload one by one.

    The optional fields are in `peek(data).extras`. Raises the subclass of PayloadError that names the fault.
    """
    header = peek(data)
    if header.codec is Codec.PREDICTIVE:
        decoding = Decoding(header, shared)
        for _ in decoding:
            pass
        return decoding.anchors
    contract, prompt_ids, fingerprint = shared.contract, shared.prompt_ids, b""
    if header.codec.bound:
        predictor = _right_predictor(header, shared)
        prompt_ids, fingerprint = predictor.prompt_ids, predictor.identity
    elif header.tag != contract.tag:
        raise ContractMismatchError(
            f"contract: expected tag {contract.tag} of contract {contract}, found a payload with "
            f"tag {header.tag}; use the model bundle that it was made for, or ask for a payload for this one"
        )
    base = _right_base(header, shared.base)
    prompt_ids = prompt_ids if header.needs_prompt else None
    if header.needs_prompt and prompt_ids is None:
        remedy = "give the prompt beside the payload"
        if header.extras.prompt is not None:
            remedy = "put the text that the payload carries in the chat template and tokenise it"
        raise PromptRequiredError(
            "prompt: expected the ids of the prompt that the payload was made with (prompt_ids=...), found "
            f"none; {remedy}"
        )
    verify(header.data, contract, prompt_ids, base, fingerprint)
    if header.codec in ARITHMETIC_CODED:
        shape = compact.decode(header.body, contract, prompt_ids or (), base.anchors if base else None)
    else:
        shape = decode_template(header.body, _tokens(shared, header.codec))
    return _anchor_set(shape, contract, header.extras)


class Decoding:
    """A predictive payload that is being decoded: iterate over its tokens, then read `anchors`.

    Each token takes one pass of the model. Only at the end is it known whether all of them are right: then
    the iteration ends, or it raises FingerprintError and the tokens it gave must be discarded.
    """

    def __init__(self, data: bytes | Header, shared: Shared) -> None:
        """Raises PayloadError subclasses for every fault that shows without running the model."""
        header = peek(data)
        if header.codec is not Codec.PREDICTIVE:
            raise CodecError(
                f"codec: expected {Codec.PREDICTIVE.label}, found {header.codec.label}; use decode"
            )
        self._predictor = _right_predictor(header, shared)
        self._header, self._contract = header, shared.contract
        self._base = _right_base(header, shared.base)
        old = self._base.anchors if self._base else None
        self._body = predictive.PredictiveBody(self._predictor, self._contract.vocab_size, old, header.body)
        self._anchors: AnchorSet | None = None

    def __iter__(self) -> Iterator[DecodedToken]:
        """Raises FingerprintError, and what the predictor does."""
        try:
            yield from self._body.tokens()
        except (MalformedPayloadError, AnchorRangeError) as error:
            # With other predictions a body decodes to nonsense, which breaks a rule here or fails the check.
            raise FingerprintError(_other_predictions(str(error))) from None
        found, expected = int.from_bytes(self._header.data[2:HEADER_BYTES], "big"), self._expected()
        if found != expected:
            raise FingerprintError(
                _other_predictions(f"expected check {expected:04x}, found {found:04x} in bytes 2-3")
            )
        self._anchors = _anchor_set(self._body.shape, self._contract, self._header.extras)

    @property
    def anchors(self) -> AnchorSet:
        """The anchors of the payload, once the iteration has ended."""
        if self._anchors is None:
            raise PayloadError("decoding: expected to be iterated to its end first, found it unfinished")
        return self._anchors

    def _expected(self) -> int:
        return expected_check(
            self._header.data,
            self._contract,
            self._predictor.prompt_ids,
            self._base,
            self._predictor.identity + self._body.digest,
        )


def _other_predictions(what: str) -> str:
    return (
        f"fingerprint: {what}: the model's predictions are not those the payload was written with (another "
        "prompt, or a processor whose numbers differ by more than the tolerance), or its bytes were changed "
        "on their way; ask for codec compact"
    )


def _usable(shared: Shared) -> list[Codec]:
    """The codecs for which `shared` holds what they need."""
    predicted = shared.predictor is not None
    usable = {Codec.COMPACT: True, Codec.PREDICTIVE: predicted, Codec.PORTABLE: False}
    template = shared.base is None and shared.tokens is not None
    return [codec for codec in Codec if usable.get(codec, template)]


def _tokens(shared: Shared, codec: Codec) -> TokenBytes:
    if shared.tokens is None:
        raise PayloadError(f"codec {codec.label}: expected a tokenizer (tokens=...), found none")
    return shared.tokens


def _right_predictor(header: Header, shared: Shared) -> Predictor:
    """The predictor that a payload is bound to; raises FingerprintError where it is another."""
    predictor = _predictor(shared, header.codec)
    tag = predictor.identity.hex()[:2]
    if header.tag != tag:
        raise FingerprintError(
            f"fingerprint: expected tag {tag} of this model, found a payload with tag {header.tag}; "
            "use the bundle and variant it was made with, or ask for compact"
        )
    return predictor


def _predictor(shared: Shared, codec: Codec) -> Predictor:
    """The predictor; refused where there is none, or where its prompt is not `shared.prompt_ids`."""
    predictor, prompt_ids = shared.predictor, shared.prompt_ids
    if predictor is None:
        raise FingerprintError(
            f"codec {codec.label}: expected the device's model (predictor=...), found none; "
            "use edge_runtime, or codec compact"
        )
    if prompt_ids is not None and list(prompt_ids) != list(predictor.prompt_ids):
        raise PayloadError(
            f"predictor: expected one for the prompt of {len(prompt_ids)} ids given, found one for "
            f"another of {len(predictor.prompt_ids)} ids"
        )
    return predictor


def _right_base(header: Header, base: Base | None) -> Base | None:
    """The base where the payload is a delta, else None; raises BasePayloadError where it is another."""
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
    anchors = AnchorSet(positions, ids, canvas, contract, length)
    extras.check(anchors)
    return anchors


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
    if codec not in ARITHMETIC_CODED:
        raise CodecError(
            f"a payload that adds to another one: expected codec compact, predictive or portable, found "
            f"{codec.label}"
        )
    if base.anchors.contract.identity != anchors.contract.identity:
        raise ContractMismatchError(
            f"base: expected contract {anchors.contract}, found {base.anchors.contract}"
        )
    if base.anchors.canvas != anchors.canvas:
        raise AnchorRangeError(f"base: expected a canvas of {anchors.canvas}, found {base.anchors.canvas}")
    now = anchors.by_position
    for position, token in base.anchors.by_position.items():
        if now.get(position) != token:
            raise AnchorRangeError(
                f"base: committed tokens stay; expected id {token} at position {position}, "
                f"found {now.get(position)}"
            )
    if base.anchors.length is not None and anchors.length != base.anchors.length:
        raise AnchorRangeError(
            f"base: a known length stays; expected {base.anchors.length}, found {anchors.length}"
        )
