"""ChatTemplate: the compiled form of a chat template, literal text around each message.

Responsible for rendering messages without Jinja. Not responsible for tokenising the result, nor for compiling
a Jinja template (see `chat_compiler`). A payload's contract hashes this form, so both sides of the network
put the same text before an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_runtime.errors import BundleSchemaError, UsageError

Affixes = tuple[str, str]
"""Text before and after a message's content."""

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class ChatTemplate:
    """Affixes of each role, and the text that opens an answer.

    default_system: content of the system message that is prepended to messages without one, or None.
    generation:     text after the last message that opens the assistant's answer.
    """

    default_system: str | None
    system: Affixes
    user: Affixes
    assistant: Affixes
    generation: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChatTemplate:
        """Reads the compiled form; raises BundleSchemaError where a field is missing or of another type."""
        default = _field(data, "default_system")
        if default is not None and not isinstance(default, str):
            raise BundleSchemaError(
                f"chat template: expected text or null in 'default_system', found {default!r}"
            )
        generation = _field(data, "generation")
        if not isinstance(generation, str):
            raise BundleSchemaError(f"chat template: expected text in 'generation', found {generation!r}")
        system, user, assistant = (_affixes(data, role) for role in ROLES)
        return cls(default, system, user, assistant, generation)

    def to_json(self) -> dict[str, Any]:
        """The compiled form, as it is stored in a bundle and hashed into a contract."""
        return {
            "default_system": self.default_system,
            "system": list(self.system),
            "user": list(self.user),
            "assistant": list(self.assistant),
            "generation": self.generation,
        }

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Text of a conversation up to the place where the answer begins.

        Each message has a "role" (system, user or assistant) and a "content". Raises UsageError for a message
        without them.
        """
        parts: list[str] = []
        if self.default_system is not None and (not messages or messages[0].get("role") != "system"):
            parts += [self.system[0], self.default_system, self.system[1]]
        affixes = {"system": self.system, "user": self.user, "assistant": self.assistant}
        for message in messages:
            role, content = message.get("role"), message.get("content")
            if role not in affixes or not isinstance(content, str):
                raise UsageError(
                    f"chat message: expected a role of {', '.join(ROLES)} and a text content, "
                    f"found role {role!r} with a content of type {type(content).__name__}"
                )
            prefix, suffix = affixes[role]
            parts += [prefix, content, suffix]
        return "".join(parts) + self.generation

    def render_prompt(self, user_text: str) -> str:
        """Text of a single question: the default system message, the user's text, the answer's opening."""
        return self.render([{"role": "user", "content": user_text}])

    @property
    def before_question(self) -> str:
        """Text before the user's in `render_prompt`: what a model reads before it predicts a question."""
        if self.default_system is None:
            return self.user[0]
        return "".join((self.system[0], self.default_system, self.system[1], self.user[0]))


def _field(data: Mapping[str, Any], name: str) -> Any:
    if not isinstance(data, Mapping) or name not in data:
        raise BundleSchemaError(f"chat template: expected a field {name!r}, found {data!r:.80}")
    return data[name]


def _affixes(data: Mapping[str, Any], role: str) -> Affixes:
    value = _field(data, role)
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(v, str) for v in value):
        raise BundleSchemaError(f"chat template: expected [prefix, suffix] in {role!r}, found {value!r}")
    return value[0], value[1]
