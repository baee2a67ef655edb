"""Chat templates: compiled to literal text where that is exact, refused where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edge_runtime.errors import JinjaTemplateError
from edge_runtime.text.chat import ChatTemplate
from edge_runtime.text.chat_compiler import Message, Render, compile_template
from lab.benches.random_checkpoint import CHAT_TEMPLATE

jinja2 = pytest.importorskip("jinja2", reason="the device has no Jinja, and needs none")

# In the manner of Qwen2.5's: one branch with tools, one without, roles checked in the loop.
WITH_TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a small test model.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first)
        or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

NO_DEFAULT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def renderer(template: str) -> Render:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def fail(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = fail
    compiled = environment.from_string(template)

    def render(messages: Sequence[Message], generation: bool) -> str:
        return str(compiled.render(messages=messages, add_generation_prompt=generation))

    return render


def test_the_literal_form_is_found(template_json: dict[str, Any]) -> None:
    assert compile_template(renderer(CHAT_TEMPLATE)).to_json() == template_json


def test_two_texts_that_render_alike_compile_alike() -> None:
    assert compile_template(renderer(WITH_TOOLS)) == compile_template(renderer(CHAT_TEMPLATE))


def test_a_template_without_a_default_system_message() -> None:
    compiled = compile_template(renderer(NO_DEFAULT))
    assert compiled.default_system is None
    assert compiled.render("Hi") == "[user]Hi[/][assistant]"


def test_a_start_of_every_conversation() -> None:
    compiled = compile_template(renderer("<s>" + NO_DEFAULT))
    assert compiled.to_json() == compile_template(renderer(NO_DEFAULT)).to_json() | {"start": "<s>"}
    assert ChatTemplate.from_json(compiled.to_json()) == compiled
    assert compiled.render("Hi") == "<s>[user]Hi[/][assistant]"
    assert [piece.text for piece in compiled.opening] == ["<s>", "[user]"]


REFUSED = {
    "content trimmed": NO_DEFAULT.replace("m.content", "m.content | trim"),
    "content in upper case": NO_DEFAULT.replace("m.content", "m.content | upper"),
    "content twice": NO_DEFAULT.replace("{{ m.content }}", "{{ m.content }}{{ m.content }}"),
    "content left out": NO_DEFAULT.replace("{{ m.content }}", ""),
    "a number before each message": NO_DEFAULT.replace("[{{", "{{ loop.index }}[{{"),
    "a mark before a first user alone": "{% if messages[0].role == 'user' %}<s>{% endif %}" + NO_DEFAULT,
    "a mark at the end": NO_DEFAULT + "{% if not add_generation_prompt %}</s>{% endif %}",
    "separators between messages": NO_DEFAULT.replace("[/]", "{% if not loop.last %}[/]{% endif %}"),
    "thoughts removed from earlier answers": NO_DEFAULT.replace(
        "m.content", "(m.content.split('</think>')[-1] if not loop.last else m.content)"
    ),
    "roles that must alternate": "{{ raise_exception('no') if messages[0].role == 'system' }}" + NO_DEFAULT,
}


@pytest.mark.parametrize("template", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_literal_is_refused(template: str) -> None:
    with pytest.raises(JinjaTemplateError):
        compile_template(renderer(template))
