"""A finished text as a payload: any model's answer, or a person's message, for a device with this bundle.

    data = payload_of(edge, "Boil it for a minute.", "How do I purify water?")

The text is coded by the device's own model behind the prompt, so the device gets every byte of it back.
Responsible for the tokens of a text and for their payload. Not responsible for who wrote it.
"""

from __future__ import annotations

from edge_runtime.errors import UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import Prompt
from payload import AUTO, AnchorSet, Codec, Shared, encode
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
