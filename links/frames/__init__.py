"""Frames: one datagram each way, for links where every byte counts (SPEC.md, "Frames").

    sent = encode_question(Question(id=7, text="Who leads Anna?"), shared)  # on the device
    question = decode_question(sent, shared)  # on the service's side
    back = encode_reply(AnswerFrame(question.id, part=0, last=True, payload=payload))
    reply = decode_reply(back)  # on the device: an AnswerFrame or a Refusal

A question frame carries the user's text, coded like a payload; an answer frame one payload of a chain; a
refusal the reason why there is none. Responsible for bytes. Not responsible for sockets, retries or keys.
"""

from links.frames.kinds import MAX_FRAME_BYTES, MAX_PARTS, FrameHead, FrameKind, peek_frame
from links.frames.question import (
    MAX_QUESTION_FRAME_BYTES,
    Question,
    QuestionHead,
    decode_question,
    encode_question,
    peek_question,
)
from links.frames.question_text import MAX_QUESTION_BYTES
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, answer_room, decode_reply, encode_reply

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_PARTS",
    "MAX_QUESTION_BYTES",
    "MAX_QUESTION_FRAME_BYTES",
    "AnswerFrame",
    "FrameHead",
    "FrameKind",
    "Question",
    "QuestionHead",
    "Refusal",
    "RefusalCode",
    "answer_room",
    "decode_question",
    "decode_reply",
    "encode_question",
    "encode_reply",
    "peek_frame",
    "peek_question",
]
