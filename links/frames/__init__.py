"""Frames: one datagram each way, for links where every byte counts (SPEC.md, "Frames").

    sent = encode_question(Question(id=7, text="Who leads Anna?"), shared)  # on the device
    question = decode_question(sent, shared)  # on the service's side
    back = encode_reply(AnswerFrame(question.id, part=0, last=True, payload=payload))
    reply = decode_reply(back)  # on the device: an AnswerFrame, a Refusal or a Challenge

A question frame carries the user's text, coded like a payload; an answer frame one payload of a chain; a
refusal the reason why there is none; a challenge asks for the question again, with a cookie. Responsible for
bytes. Not responsible for sockets, retries or keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports

if TYPE_CHECKING:
    from links.frames.cookie import COOKIE_BYTES as COOKIE_BYTES
    from links.frames.cookie import Challenge as Challenge
    from links.frames.cookie import split_cookie as split_cookie
    from links.frames.cookie import with_cookie as with_cookie
    from links.frames.kinds import MAX_FRAME_BYTES as MAX_FRAME_BYTES
    from links.frames.kinds import MAX_PARTS as MAX_PARTS
    from links.frames.kinds import FrameHead as FrameHead
    from links.frames.kinds import FrameKind as FrameKind
    from links.frames.kinds import peek_frame as peek_frame
    from links.frames.question import MAX_QUESTION_FRAME_BYTES as MAX_QUESTION_FRAME_BYTES
    from links.frames.question import Question as Question
    from links.frames.question import QuestionHead as QuestionHead
    from links.frames.question import decode_question as decode_question
    from links.frames.question import encode_question as encode_question
    from links.frames.question import peek_question as peek_question
    from links.frames.question_text import MAX_QUESTION_BYTES as MAX_QUESTION_BYTES
    from links.frames.reply import AnswerFrame as AnswerFrame
    from links.frames.reply import Refusal as Refusal
    from links.frames.reply import RefusalCode as RefusalCode
    from links.frames.reply import answer_room as answer_room
    from links.frames.reply import decode_reply as decode_reply
    from links.frames.reply import encode_reply as encode_reply
else:
    __all__, __getattr__ = lazy_exports(__name__, __file__)
