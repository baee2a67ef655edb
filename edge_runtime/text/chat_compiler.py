"""Compiles a Jinja chat template to literal text around each message.

The device renders conversations without Jinja: it puts a prefix and a suffix around each message's content
(`edge_runtime.text.chat`). This module finds those texts by rendering conversations whose contents are
unmistakable marks, and then checks on other conversations that both renderings give the same string. A
template that does more than surround its messages is refused.

The text after the last message of a conversation is that message's suffix; the rest of what stands between
two messages is the prefix of the second. A text that stands before any first message is the conversation's
start. So two Jinja texts that render alike compile to the same form, and to the same contract.

Responsible for the compilation and its proof. Not responsible for running Jinja: the caller passes a function
that renders messages, and the device, which has none, never calls this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge_runtime.errors import JinjaTemplateError
from edge_runtime.text.chat import ROLES, ChatTemplate, Message

Render = Callable[[Sequence[dict[str, str]], bool], str]
"""Renders messages, as Jinja has them, with the original template; the flag is `add_generation_prompt`."""

_ADVICE = (
    "Edit chat_template in tokenizer_config.json so that each message is only surrounded by fixed text, "
    "as in the Qwen2.5 template."
)

_CONVERSATIONS: tuple[tuple[str, ...], ...] = (
    ("user:How many loaves?",),
    ("system:Answer in one word.", "user:Which river?"),
    ("user:Hello", "assistant:Hello. What can I do?", "user:Count to three."),
    ("system:", "user:"),
    ("user:  spaces around  \n",),
    ("system:Two\nlines", "user:\n\nfirst\n\n\nlast\n\n", "assistant: indented\n", "user:<|im_end|>\n"),
    (
        "user:{{ braces }} {% percent %}",
        "assistant:naïve – 日本語 🎈",
        "user:<think>\nwhy\n</think>\n\nbecause",
    ),
    ("user:one", "assistant:two", "user:three", "assistant:<think>\nfour\n</think>\n\nfive", "user:six"),
    ("user:one", "user:two"),
)
"""Conversations both renderings must agree on, each message as role:content."""


def compile_template(render: Render) -> ChatTemplate:
    """Returns the literal form of the chat template that `render` renders with.

    Raises JinjaTemplateError, with the conversation that shows it, where there is no such form.
    """
    marks = {role: f"\ue000{role}\ue001" for role in ROLES}  # private use: no template's own text contains it
    conversation = [Message(role, marks[role]) for role in ROLES]
    suffixes = {
        role: _split(_render(render, conversation[: index + 1]), marks[role])[1]
        for index, role in enumerate(ROLES)
    }
    prefixes: dict[str, str] = {}
    rest = _render(render, conversation)
    for role in ROLES:
        prefixes[role], rest = _split(rest, marks[role])
        rest = _strip(rest, suffixes[role], f"the end of the {role} message")
    before, _ = _split(_render(render, [Message("user", marks["user"])]), marks["user"])
    start = before.removesuffix(prefixes["user"])
    if prefixes["system"].startswith(start):
        prefixes["system"], before = prefixes["system"].removeprefix(start), before.removeprefix(start)
    else:
        start = ""
    affixes = {role: (prefixes[role], suffixes[role]) for role in ROLES}
    question = [Message("system", marks["system"]), Message("user", marks["user"])]
    generation = _strip(_render(render, question, True), _render(render, question), "the answer's opening")
    compiled = ChatTemplate(_default_system(before, affixes), **affixes, generation=generation, start=start)
    verify_template(compiled, render)
    return compiled


def verify_template(compiled: ChatTemplate, render: Render) -> None:
    """Raises JinjaTemplateError at the first of several conversations that the two render differently."""
    for spoken in _CONVERSATIONS:
        messages = [Message(*turn.split(":", 1)) for turn in spoken]
        expected, found = _render(render, messages, True), compiled.render(messages)
        if expected != found:
            raise JinjaTemplateError(
                f"the chat template cannot be expressed as fixed text around each message: for {spoken} it "
                f"renders {expected!r}, fixed text gives {found!r}. {_ADVICE}"
            )


def _default_system(before: str, affixes: dict[str, tuple[str, str]]) -> str | None:
    """The system message that the template puts before a conversation without one; before: a first user's."""
    opening = affixes["user"][0]
    if before == opening:
        return None
    prefix, suffix = affixes["system"]
    default = before.removesuffix(opening)
    if (
        len(default) + len(opening) != len(before)
        or not (default.startswith(prefix) and default.endswith(suffix))
        or len(default) < len(prefix) + len(suffix)
    ):
        raise JinjaTemplateError(
            f"the chat template puts {before!r} before a first user message: expected {opening!r}, alone or "
            f"after a system message between {prefix!r} and {suffix!r}. {_ADVICE}"
        )
    return default[len(prefix) : len(default) - len(suffix)]


def _render(render: Render, messages: Sequence[Message], generation: bool = False) -> str:
    try:
        return render([message._asdict() for message in messages], generation)
    except Exception as error:  # a template may raise anything of its own
        roles = [message.role for message in messages]
        raise JinjaTemplateError(
            f"the chat template fails for the roles {roles}: {error}. {_ADVICE}"
        ) from error


def _split(text: str, mark: str) -> tuple[str, str]:
    parts = text.split(mark)
    if len(parts) != 2:
        raise JinjaTemplateError(
            f"the chat template shows a message {len(parts) - 1} times in {text!r}: expected once. {_ADVICE}"
        )
    return parts[0], parts[1]


def _strip(text: str, start: str, what: str) -> str:
    if not text.startswith(start):
        raise JinjaTemplateError(
            f"the chat template renders {what} differently in the middle and at the end of a conversation: "
            f"expected {start!r}, found {text[: len(start) + 20]!r}. {_ADVICE}"
        )
    return text[len(start) :]
