"""A conversation, or a form's questions, as the text of one question (SPEC.md, "Frames").

Responsible for the form of the text. Not responsible for how many messages fit in a frame (see `asking`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from edge_runtime.form import Form
from edge_runtime.text.chat import Message, Prompt

DIVIDER, SYSTEM_MARK = "\x1e", "\x1d"
"""Unicode's record separator stands between messages, its group separator before a system message."""

_FORM_MARK = "\x1c"
"""Unicode's file separator stands before a form's name and behind what is asked of it."""

MAX_MESSAGES = 64

_PLAIN = {ord(DIVIDER): " ", ord(SYSTEM_MARK): " "}


def conversation_text(messages: Sequence[Message]) -> str:
    """The text of a system message or none, then questions and answers in turn, a question the last.

    A divider within a message becomes a space: what is asked is `messages_of` this text.
    """
    texts = [message.content.translate(_PLAIN) for message in messages]
    mark = SYSTEM_MARK if messages[0].role == "system" else ""
    return mark + DIVIDER.join(texts)


def messages_of(text: str) -> Prompt:
    """The conversation in a question's text; the text itself where it is none."""
    parts = text.split(DIVIDER)
    system = [Message("system", parts[0][1:])] if text.startswith(SYSTEM_MARK) else []
    turns = parts[len(system) :]
    if len(parts) > MAX_MESSAGES or len(turns) % 2 == 0 or (len(turns) == 1 and not system):
        return text
    roles = ("user", "assistant")
    return [*system, *(Message(roles[number % 2], turn) for number, turn in enumerate(turns))]


def shorter(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Without the oldest question and its answer, at last without the system message; () for one question."""
    head = tuple(messages[:1]) if messages[0].role == "system" else ()
    turns = tuple(messages[len(head) :])
    return (*head, *turns[2:]) if len(turns) > 2 else turns if head else ()


def decision_text(form: Form, text: str, asked: Sequence[int]) -> tuple[str, str]:
    """The text that asks some of a form's questions about a text, and that text as it is sent."""
    sent = text.translate(_PLAIN)
    mask = sum(1 << at for at in asked)
    return f"{_FORM_MARK}{form.name}{mask:x}{_FORM_MARK}{sent}", sent


def decision_of(text: str) -> tuple[str, list[int], str] | None:
    """What a text asks: a form's name, which of its questions, and the text they are about."""
    found = re.match("\x1c([0-9a-f]{8})([0-9a-f]{1,16})\x1c", text)
    if found is None:
        return None
    mask = int(found[2], 16)
    return found[1], [at for at in range(mask.bit_length()) if mask >> at & 1], text[found.end() :]
