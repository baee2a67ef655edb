"""Conversations: messages, and the chat template that puts literal text around each of them.

Responsible for what a message is and for rendering messages without Jinja. Not responsible for tokenising
the result (see `prompt_form`), nor for compiling a Jinja template (see `chat_compiler`). A payload's contract
hashes the compiled form, so both sides of the network put the same text before an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from edge_runtime.errors import BundleSchemaError, UsageError

Affixes = tuple[str, str]
"""Text before and after a message's content."""

ROLES = ("system", "user", "assistant")


class Message(NamedTuple):
    """One message of a conversation. role: one of ROLES."""

    role: str
    content: str


Prompt = str | Sequence[Message | Mapping[str, str]]
"""A user's question as text, or a conversation: messages, or mappings with the fields of one."""


class Piece(NamedTuple):
    """A part of a rendered conversation: a message's content, or text of the template."""

    text: str
    is_content: bool


def as_messages(prompt: Prompt, system: str | None = None) -> tuple[Message, ...]:
    """The messages of a prompt. system: content of a system message to put before them.

    Raises UsageError for no messages at all, a role that is none of ROLES, a content that is no text, and for
    two system messages at the beginning.
    """
    given = [Message("user", prompt)] if isinstance(prompt, str) else prompt
    if not isinstance(given, list | tuple) or not given:
        raise UsageError(f"messages: expected a list of at least one message, found {given!r:.80}")
    messages = tuple(_message(each, number) for number, each in enumerate(given, 1))
    if system is None:
        return messages
    if messages[0].role == "system":
        raise UsageError("messages: expected none of role system beside the system text given, found one")
    return (_message(Message("system", system), 0), *messages)


def _message(value: object, number: int) -> Message:
    fields = value._asdict() if isinstance(value, Message) else value
    if not isinstance(fields, Mapping) or set(fields) != {"role", "content"}:
        found = f"the fields {sorted(map(str, fields))}" if isinstance(fields, Mapping) else repr(value)
        raise UsageError(f"message {number}: expected the fields role and content, found {found:.80}")
    message = Message(fields["role"], fields["content"])
    if message.role not in ROLES or not isinstance(message.content, str):
        raise UsageError(
            f"message {number}: expected a role of {', '.join(ROLES)} and a text as content, "
            f"found role {message.role!r:.40} with a content of type {type(message.content).__name__}"
        )
    return message


@dataclass(frozen=True)
class ChatTemplate:
    """Affixes of each role, and the text that opens an answer.

    default_system: content of the system message that is prepended to messages without one, or None.
    generation:     text after the last message that opens the assistant's answer.
    start:          text before the first message: the start token of Llama 3 and Gemma.
    """

    default_system: str | None
    system: Affixes
    user: Affixes
    assistant: Affixes
    generation: str
    start: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChatTemplate:
        """Reads the compiled form; raises BundleSchemaError where a field is missing or of another type."""
        default = _field(data, "default_system")
        if default is not None and not isinstance(default, str):
            raise BundleSchemaError(
                f"chat template: expected text or null in 'default_system', found {default!r}"
            )
        generation, start = _field(data, "generation"), data.get("start", "")
        for name, text in (("generation", generation), ("start", start)):
            if not isinstance(text, str):
                raise BundleSchemaError(f"chat template: expected text in {name!r}, found {text!r:.80}")
        system, user, assistant = (_affixes(data, role) for role in ROLES)
        return cls(default, system, user, assistant, generation, start)

    def to_json(self) -> dict[str, Any]:
        """The compiled form, as it is stored in a bundle and hashed into a contract."""
        fields = {
            "default_system": self.default_system,
            "system": list(self.system),
            "user": list(self.user),
            "assistant": list(self.assistant),
            "generation": self.generation,
        }
        return {**fields, "start": self.start} if self.start else fields

    def pieces(self, prompt: Prompt) -> Iterator[Piece]:
        """The parts of a conversation in order, up to the place where the answer begins.

        A default system message stands before a conversation without one. Raises UsageError as `as_messages`.
        """
        messages = as_messages(prompt)
        if self.start:
            yield Piece(self.start, False)
        if messages[0].role != "system":
            yield from self._default()
        for role, content in messages:
            prefix, suffix = {"system": self.system, "user": self.user, "assistant": self.assistant}[role]
            yield from (Piece(prefix, False), Piece(content, True), Piece(suffix, False))
        yield Piece(self.generation, False)

    def render(self, prompt: Prompt) -> str:
        """Text of a conversation: its `pieces`, joined."""
        return "".join(piece.text for piece in self.pieces(prompt))

    @property
    def opening(self) -> Iterable[Piece]:
        """The pieces before a single question's text."""
        return [Piece(self.start, False), *self._default(), Piece(self.user[0], False)]

    def _default(self) -> list[Piece]:
        if self.default_system is None:
            return []
        prefix, suffix = self.system
        return [Piece(prefix, False), Piece(self.default_system, True), Piece(suffix, False)]


def _field(data: Mapping[str, Any], name: str) -> Any:
    if not isinstance(data, Mapping) or name not in data:
        raise BundleSchemaError(f"chat template: expected a field {name!r}, found {data!r:.80}")
    return data[name]


def _affixes(data: Mapping[str, Any], role: str) -> Affixes:
    value = _field(data, role)
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(v, str) for v in value):
        raise BundleSchemaError(f"chat template: expected [prefix, suffix] in {role!r}, found {value!r}")
    return value[0], value[1]
