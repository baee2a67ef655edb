"""The text of a question as a body: the codecs of a payload, applied to what the user wrote.

Responsible for turning a text into the body of a codec and back, and for refusing what would not come back.
Not responsible for the codecs themselves (see `payload.codecs`) nor for the frame around a body (see
`question`).

For the codecs a text is an answer whose tokens are all anchors, without a prompt (compact) or behind the chat
template's opening (predictive): one grammar and one token model for both directions.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.errors import UserError
from payload.anchors import AnchorSet
from payload.codecs import compact, predictive
from payload.codecs.adaptive_model import QUESTION_COUNTS
from payload.codecs.predictive import QUESTION_BOUND, PredictiveBody, Predictor
from payload.codecs.template import TokenBytes
from payload.contract import Contract
from payload.errors import (
    AnchorRangeError,
    FingerprintError,
    MalformedPayloadError,
    OversizedPayloadError,
)

MAX_QUESTION_BYTES = 2048
"""UTF-8 bytes of a question's text, and so its most tokens."""

CANVASES = (512, 1024, 2048)
PREDICTIVE_CANVASES = (128, *CANVASES)
"""Canvases that a writer chooses from, those that the codec writes in the fewest bits first."""


def bounded_utf8(text: str) -> bytes:
    """A question's text in UTF-8. Raises OversizedPayloadError or MalformedPayloadError (lone surrogates)."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedPayloadError(
            f"question: expected text, found {text[error.start]!r}, half a character, at {error.start}"
        ) from None
    if not 0 < len(data) <= MAX_QUESTION_BYTES:
        raise OversizedPayloadError(
            f"question: expected 1 to {MAX_QUESTION_BYTES} bytes of UTF-8, found {len(data)}"
            + ("; ask for less, or over HTTP" if data else "")
        )
    return data


def text_of(data: bytes) -> str:
    """The text in the bytes of a decoded question. Raises MalformedPayloadError."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPayloadError(
            f"question: expected UTF-8, found byte {data[error.start]:#04x} at {error.start}"
        ) from None


def token_ids(text: str, tokens: TokenBytes, contract: Contract) -> list[int] | None:
    """Ordinary ids whose bytes, joined, are the text; None where the tokenizer does not give any."""
    ids = tokens.encode(text)
    if not all(map(contract.is_ordinary, ids)):
        return None
    return ids if b"".join(map(tokens.token_bytes, ids)) == text.encode("utf-8") else None


def compact_body(ids: Sequence[int], contract: Contract) -> bytes:
    """The ids under the static token model, without a prompt."""
    return compact.encode(as_anchors(ids, contract, CANVASES), (), None)


def read_compact(body: bytes, contract: Contract, tokens: TokenBytes) -> bytes:
    """The bytes of the text. Raises MalformedPayloadError, AnchorRangeError or OversizedPayloadError."""
    positions, ids, _, length = compact.decode(body, contract, (), None)
    _check_whole(positions, length)
    return _joined(ids, contract, tokens)


def predictive_body(
    ids: Sequence[int], contract: Contract, predictor: Predictor, tolerance: float
) -> tuple[bytes, bytes]:
    """The ids against the model's predictions, and the digest of the text. One pass of the model."""
    anchors = as_anchors(ids, contract, PREDICTIVE_CANVASES)
    return predictive.encode(anchors, predictor, None, tolerance, ids, QUESTION_COUNTS, QUESTION_BOUND)


def read_predictive(
    body: bytes, contract: Contract, tokens: TokenBytes, predictor: Predictor
) -> tuple[bytes, bytes]:
    """The bytes of the text and its digest; one pass of the model per token, at most MAX_QUESTION_BYTES.

    Raises FingerprintError where other predictions than the writer's lead astray, and where the model cannot
    read the text.
    """
    coded = PredictiveBody(predictor, contract.vocab_size, None, body, QUESTION_COUNTS, QUESTION_BOUND)
    ids: list[int] = []
    size = 0
    try:
        for token in coded.tokens():
            if not token.anchor:
                raise MalformedPayloadError(
                    f"question: expected every token to be coded, found a gap at {token.position}"
                )
            ids.append(token.id)
            size += len(tokens.token_bytes(token.id))
            if size > MAX_QUESTION_BYTES or len(ids) > MAX_QUESTION_BYTES:
                raise MalformedPayloadError(
                    f"question: expected at most {MAX_QUESTION_BYTES} bytes of UTF-8, found more"
                )
        positions, _, _, length = coded.shape
        _check_whole(positions, length)
        return _joined(ids, contract, tokens), coded.digest
    except (MalformedPayloadError, AnchorRangeError, OversizedPayloadError) as error:
        raise FingerprintError(other_predictions(str(error))) from None
    except UserError as error:  # the predictor's own: a text past its context, which any sender may forge
        raise FingerprintError(
            f"question of codec predictive: expected a text that the model can read, found: {error}; ask for "
            "codec compact"
        ) from error


def other_predictions(what: str) -> str:
    """The text of a FingerprintError."""
    return (
        f"fingerprint: {what}: the model's predictions are not those the question was written with (a "
        "processor whose numbers differ by more than the tolerance); ask for codec compact"
    )


def as_anchors(ids: Sequence[int], contract: Contract, canvases: Sequence[int]) -> AnchorSet:
    """A text as the codecs see it: an answer of which every token is an anchor."""
    canvas = next(size for size in canvases if size >= len(ids))
    return AnchorSet(tuple(range(len(ids))), tuple(ids), canvas, contract, len(ids))


def _check_whole(positions: Sequence[int], length: int | None) -> None:
    if length is None or len(positions) != length or not positions:
        raise MalformedPayloadError(
            f"question: expected a text without gaps, found {len(positions)} tokens of "
            f"{'an unknown number' if length is None else length}"
        )


def _joined(ids: Sequence[int], contract: Contract, tokens: TokenBytes) -> bytes:
    if not all(map(contract.is_ordinary, ids)):
        raise AnchorRangeError("question: expected ordinary tokens, found a special one")
    data = b"".join(map(tokens.token_bytes, ids))
    if not 0 < len(data) <= MAX_QUESTION_BYTES:
        raise OversizedPayloadError(
            f"question: expected 1 to {MAX_QUESTION_BYTES} bytes of UTF-8, found {len(data)}"
        )
    return data
