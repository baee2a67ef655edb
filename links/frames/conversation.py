"""A conversation as the text of one question (SPEC.md, "Frames"): its messages, divided by a character.

Responsible for the form of the text. Not responsible for how many messages fit in a frame (see `asking`).
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.text.chat import Message, Prompt

DIVIDER, SYSTEM_MARK = "\x1e", "\x1d"
"""Unicode's record separator stands between messages, its group separator before a system message."""

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
