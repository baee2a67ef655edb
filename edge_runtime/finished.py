"""A finished text as a payload: any model's answer, or a person's message, for a device with this bundle.

    data = payload_of(edge, "Boil it for a minute.", "How do I purify water?")

The text is coded by the device's own model behind the prompt, so the device gets every byte of it back.
Responsible for the tokens of a text and for their payload. Not responsible for who wrote it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import Prompt
from payload import AUTO, AnchorSet, Base, Codec, Shared, encode
from payload.anchors import MAX_CANVAS


def payload_of(edge: EdgeRuntime, text: str, prompt: Prompt, codec: Codec | str = AUTO) -> bytes:
    """The payload of a whole text, which the device writes byte for byte.

    prompt: what it answers, which the device has to know too; "" for a message that answers nothing.
    codec:  auto is the smaller of compact and predictive. Raises UsageError for a text that the vocabulary
            cannot write or that does not fit, and what `payload.encode` does.
    """
    ids, prompt_ids = text_ids(edge, text), edge.prompt_ids(prompt)
    room = min(edge.model.context - len(prompt_ids), MAX_CANVAS)
    if len(ids) > room:
        raise UsageError(
            f"text: expected at most {room} tokens behind this prompt, found {len(ids)}. Send it in parts."
        )
    anchors = AnchorSet(tuple(range(len(ids))), tuple(ids), len(ids), edge.bundle.contract, len(ids))
    predictor = None if codec in (Codec.COMPACT, Codec.COMPACT.label) else edge.predictor(prompt_ids)
    shared = Shared(edge.bundle.contract, prompt_ids, predictor=predictor)
    return encode(anchors, shared, codec, draft=ids)


def chain_of(
    edge: EdgeRuntime, text: str, prompt: Prompt, room: int, codec: Codec
) -> Iterator[tuple[bytes, bool, bool]]:
    """Payloads of at most `room` bytes that make up a text, each with whether it adds to the one before and
    whether it is the last.

    Each but the last holds the tokens up to some place, behind which the device goes on by itself. Raises as
    `payload_of`, and UsageError where `room` holds not one token more.
    """
    ids, prompt_ids, contract = text_ids(edge, text), edge.prompt_ids(prompt), edge.bundle.contract
    predictor = edge.predictor(prompt_ids) if codec is Codec.PREDICTIVE else None
    room_of_text = min(edge.model.context - len(prompt_ids), MAX_CANVAS)
    ids = ids[:room_of_text]
    base: Base | None = None

    def part(count: int) -> tuple[AnchorSet, bytes]:
        length = count if count == len(ids) else None
        anchors = AnchorSet(tuple(range(count)), tuple(ids[:count]), len(ids), contract, length)
        shared = Shared(contract, prompt_ids, predictor=predictor, base=base)
        return anchors, encode(anchors, shared, codec, draft=ids[:count])

    sent = 0
    while sent < len(ids):
        anchors, data = part(len(ids))
        if len(data) > room:
            fitting = bisect_right(range(sent + 1, len(ids)), room, key=lambda count: len(part(count)[1]))
            if not fitting:
                raise UsageError(f"room: expected at least one token in {room} bytes, found none that fits")
            anchors, data = part(sent + fitting)
        yield data, base is not None, len(anchors) == len(ids)
        sent, base = len(anchors), Base(data, anchors)


def text_ids(edge: EdgeRuntime, text: str) -> list[int]:
    """The device's tokens for a text. Raises UsageError where they would not give its bytes back."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("text: expected Unicode, found half of a surrogate pair") from None
    if not data:
        raise UsageError("text: expected at least one character, found none")
    tokenizer, contract = edge.bundle.tokenizer, edge.bundle.contract
    ids = tokenizer.encode_bytes(data)
    back = b"".join(tokenizer.token_bytes(id_) for id_ in ids)
    if back != data or not all(map(contract.is_ordinary, ids)):
        pairs = enumerate(zip(data, back, strict=False))
        at = next((index for index, (wanted, found) in pairs if wanted != found), len(back))
        raise UsageError(
            f"text: expected one that the bundle writes byte for byte, found another from byte {at} on "
            f"({data[at : at + 12]!r}). Leave that out."
        )
    return ids
