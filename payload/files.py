"""Payload files: bounded reading.

Responsible for turning what goes wrong with a file into one InputError. Not responsible for its content.
"""

from __future__ import annotations

import sys

from common.errors import InputError
from payload.errors import OversizedPayloadError
from payload.header import MAX_PAYLOAD_BYTES


def read_payload(name: str) -> bytes:
    """Bytes of a payload file, or of standard input for "-"; at most MAX_PAYLOAD_BYTES.

    Raises InputError, or OversizedPayloadError for a larger file.
    """
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_PAYLOAD_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise InputError(f"{name}: expected a readable payload file, found {error.strerror}") from None
    if len(data) > MAX_PAYLOAD_BYTES:
        raise OversizedPayloadError(
            f"{name}: expected at most {MAX_PAYLOAD_BYTES} bytes, found more; this is not a payload"
        )
    return data
