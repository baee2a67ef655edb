"""Frames: questions that a gateway reads, and what comes back to a device.

The first byte: 1 a question whose check is made right (2 and 4: its kind; 32 to 128: its flags), 2 a refusal
whose check is made right (32 to 128: its code), 4 a question as it is; otherwise whatever comes, with a
payload decoded.
"""

from __future__ import annotations

import json

from links.frames.cookie import split_cookie
from links.frames.kinds import FrameKind
from links.frames.question import Question, decode_question, seal_question
from links.frames.reply import AnswerFrame, decode_reply
from payload import PayloadError, Shared, decode
from payload.header import crc16
from tests.fuzz.targets.payload import MODEL, MOST_PREDICTIVE, PROMPT, TOKENS, TOY, VECTORS

ALLOWED = (PayloadError,)
INSTRUMENTED = ("payload", "links")
MAX_BYTES = 128

ASKED = Shared(TOY, PROMPT, TOKENS)
MODELLED = Shared(TOY, tokens=TOKENS, predictor=MODEL)


def run(data: bytes) -> None:
    if not data:
        return
    how, data = data[0], data[1:]
    if how & 1:
        kind = FrameKind((how >> 1) % 3)
        most = MOST_PREDICTIVE if kind is FrameKind.QUESTION_PREDICTIVE else None
        frame = bytearray(seal_question(Question(1, "a"), kind, MODELLED, data[1:][:most], data[:1]))
        check = int.from_bytes(frame[4:6], "big") ^ crc16(bytes(frame[:4] + frame[6:]))
        frame[0] |= how >> 5
        frame[4:6] = (check ^ crc16(bytes(frame[:4] + frame[6:]))).to_bytes(2, "big")
        decode_question(bytes(frame), MODELLED)
    elif how & 2:
        head = bytes([FrameKind.REFUSAL << 3 | how >> 5, 0, 1])
        decode_reply(head + crc16(head + data).to_bytes(2, "big") + data)
    elif how & 4:
        decode_question(data, MODELLED)
    else:
        split_cookie(data)
        reply = decode_reply(data)
        if isinstance(reply, AnswerFrame):
            decode(reply.payload, ASKED)


def seeds() -> list[bytes]:
    """Frames of the vectors, as they are and as texts and details to be sealed again."""
    rows = json.loads((VECTORS / "frame_vectors.json").read_text())["vectors"]
    raw = [bytes.fromhex(row["frame"]) for row in rows]
    out = [bytes([how]) + data for data in raw for how in (0, 4)]
    for data in raw:
        out += [bytes([flags << 5 | kind << 1 | 1]) + data[6:] for kind in range(3) for flags in (0, 6)]
        out.append(bytes([(data[:1] or b"\0")[0] << 5 & 0xE0 | 2]) + data[5:])
    return out
