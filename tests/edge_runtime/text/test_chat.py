"""The compiled chat template: rendering, and errors for a broken one."""

from __future__ import annotations

from typing import Any

import pytest

from edge_runtime.errors import BundleSchemaError, UsageError
from edge_runtime.text.chat import ChatTemplate
from lab.benches.random_checkpoint import CHAT_TEMPLATE


@pytest.mark.parametrize("default", [None, "You are kind."])
def test_the_text_before_a_question_is_the_prompts_own_start(
    template_json: dict[str, Any], default: str | None
) -> None:
    template = ChatTemplate.from_json({**template_json, "default_system": default})
    prompt = template.render("Who?")
    assert prompt.startswith("".join(piece.text for piece in template.opening) + "Who?")


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_it_renders_like_the_jinja_template_it_stands_for(
    template_json: dict[str, Any], system: str | None
) -> None:
    jinja2 = pytest.importorskip("jinja2")
    messages = [{"role": "system", "content": system}] if system else []
    messages += [
        {"role": "user", "content": " One\n{{ x }} "},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": ""},
    ]
    expected = jinja2.Template(CHAT_TEMPLATE).render(messages=messages, add_generation_prompt=True)
    assert ChatTemplate.from_json(template_json).render(messages) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [("default_system", 3), ("system", "x"), ("user", ["x"]), ("assistant", ["x", 1]), ("generation", None)],
)
def test_a_broken_template_is_refused_by_field(template_json: dict[str, Any], field: str, value: Any) -> None:
    with pytest.raises(BundleSchemaError):
        ChatTemplate.from_json({**template_json, field: value})
    with pytest.raises(BundleSchemaError):
        ChatTemplate.from_json({k: v for k, v in template_json.items() if k != field})


@pytest.mark.parametrize("data", [None, 3, "default_system", ["default_system"]])
def test_what_is_no_template_is_refused(data: Any) -> None:
    with pytest.raises(BundleSchemaError):
        ChatTemplate.from_json(data)


def test_a_message_of_an_unknown_role_is_refused(template_json: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ChatTemplate.from_json(template_json).render([{"role": "tool", "content": "x"}])
