"""The errors of payloads: one class per reason to refuse one.

Each message says what was expected, what was found, where, and what to do. Callers catch `PayloadError`;
commands print its text and exit with code 3 (see `common.cli`).
"""

from __future__ import annotations

from common.errors import UserError


class PayloadError(UserError, ValueError):
    """A payload, or the anchors meant for one, cannot be used."""

    exit_code = 3


class TruncatedPayloadError(PayloadError):
    """The bytes end before the payload does."""


class OversizedPayloadError(PayloadError):
    """The payload, or its decompressed content, exceeds the bounds of the format."""


class ChecksumError(PayloadError):
    """The bytes were changed on their way."""


class VersionError(PayloadError):
    """The payload has a version of the format that this reader does not support."""


class CodecError(PayloadError):
    """The payload has a codec that this reader does not support."""


class MalformedPayloadError(PayloadError):
    """The checksum holds but the content breaks a rule of the format."""


class ContractMismatchError(PayloadError):
    """The payload was made for another vocabulary, special ids or chat template."""


class AnchorRangeError(PayloadError):
    """A position lies outside the canvas, or a token id outside the vocabulary."""


class PromptRequiredError(PayloadError):
    """The payload neither carries its prompt nor was the prompt given beside it."""


class BasePayloadError(PayloadError):
    """The payload adds to another one, and that one was not given or is not the one it names."""


class FrameKindError(PayloadError):
    """The frame is of another kind than is read here, or of one that this reader does not support."""


class FingerprintError(PayloadError):
    """The payload was coded against a model's predictions, and this side has no model, another one, or
    decoded another text with it. A payload of codec compact for the same anchors can be read instead.
    """
