"""Function calls: the requests fit their tools, and the judge of a call."""

from __future__ import annotations

import json

import jsonschema
import pytest

from lab.structured.calls import REQUESTS, TOOLS, judged


def test_every_expected_call_is_valid_and_every_tool_is_asked_for_twice() -> None:
    parameters = {tool["name"]: tool["parameters"] for tool in TOOLS}
    for said, name, arguments in REQUESTS:
        jsonschema.validate(arguments, parameters[name])
        assert judged(json.dumps({"name": name, "arguments": arguments}), name, arguments) == {
            "valid": True,
            "tool": True,
            "arguments": True,
        }, said
    assert sorted(name for _, name, _ in REQUESTS) == sorted(2 * list(parameters))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Oslo is rainy.", (False, False, False)),
        ('{"name": "weather"}', (False, False, False)),
        ('{"name": ["weather"], "arguments": {}}', (False, False, False)),
        ('{"name": "weather", "arguments": {"city": 3}}', (False, False, False)),
        ('{"name": "call", "arguments": {"person": "Oslo"}}', (True, False, False)),
        ('{"name": "weather", "arguments": {"city": "Rome"}}', (True, True, False)),
    ],
)
def test_what_is_wrong_with_a_call(text: str, right: tuple[bool, bool, bool]) -> None:
    assert tuple(judged(text, "weather", {"city": "Oslo"}).values()) == right
