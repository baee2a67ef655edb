"""What a device is told of an error, in the codes of a refusal.

Not responsible for when a refusal is sent (see `answering`).
"""

from __future__ import annotations

import logging

from edge_runtime.errors import CloudRefusedError, CloudUnavailableError
from links.frames.reply import MAX_NAME_BYTES, Refusal, RefusalCode
from payload.errors import ContractMismatchError, FingerprintError, OversizedPayloadError, PayloadError

log = logging.getLogger("links.gateway")

RETRY_SECONDS = 30
"""Told to a device where the service is busy and does not say for how long."""

BUSY = ("overloaded", "stopping", "not_ready", "out_of_memory", "deadline_exceeded")
"""Codes of a service that may answer later."""


def refusal_of(error: Exception, id: int, identity: str, bundle: str = "") -> Refusal:
    """The refusal that tells a device of an error. identity: of this side's contract. bundle: its name."""
    code, retry = RefusalCode.FAILED, None
    if isinstance(error, ContractMismatchError) or _code(error) == "contract_mismatch":
        name = bundle[:MAX_NAME_BYTES] * bundle.isascii()
        return Refusal(id, RefusalCode.OTHER_CONTRACT, identity=identity[:8], bundle=name)
    if isinstance(error, FingerprintError):
        code = RefusalCode.OTHER_PREDICTIONS
    elif isinstance(error, OversizedPayloadError):
        code = RefusalCode.TOO_LONG
    elif isinstance(error, PayloadError):
        code = RefusalCode.NOT_UNDERSTOOD
    elif isinstance(error, CloudRefusedError) and _code(error) in ("prompt_too_long", "invalid_request"):
        code = RefusalCode.TOO_LONG  # everything else that a question may state is in the service's range
    elif isinstance(error, CloudUnavailableError) and (error.retry_after or _code(error) in BUSY):
        code, retry = RefusalCode.OVERLOADED, max(1, round(error.retry_after or RETRY_SECONDS))
    if code is RefusalCode.FAILED:
        log.error("no answer: %s", error)
    return Refusal(id, code, retry)


def _code(error: Exception) -> str | None:
    return error.code if isinstance(error, CloudRefusedError | CloudUnavailableError) else None
