"""Grammars as text: identity, tools, and one clear error for each that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.errors import GrammarError
from edge_runtime.fill import GrammarOptions, read_grammar
from edge_runtime.grammar.ending import ShortEnding, byte_matcher
from edge_runtime.grammar.grammar import MAX_GRAMMAR_BYTES, Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from payload import AnchorSet
from tests.bytewise import CONTRACT, BytewiseTokens, hashed_model

pytest.importorskip("llguidance")


def test_the_identity_is_of_the_meaning_not_of_the_spaces() -> None:
    spaced = Grammar.json_schema('{ "type" : "object" }')
    assert spaced == Grammar.json_schema({"type": "object"})
    assert spaced.identity != Grammar.json_schema({"type": "array"}).identity
    assert Grammar.regex("a").identity != Grammar.lark("a").identity
    assert len(spaced.identity) == 64


WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/place"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {"place": {"type": "string", "minLength": 2}},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


def test_a_call_of_a_tool_is_valid_against_its_parameters() -> None:
    grammar = CompiledGrammar(Grammar.tools([WEATHER, CLOCK]), GrammarVocabulary(BytewiseTokens(), CONTRACT))
    names = set()
    for seed in range(12):
        anchors = AnchorSet.empty(200, CONTRACT)
        tokens = fill(hashed_model(seed), [1], anchors, FillOptions(grammar=grammar, max_tokens=90))
        call = json.loads(BytewiseTokens().decode([token.id for token in tokens]))
        names.add(call["name"])
        if call["name"] == "weather":
            jsonschema.validate(call["arguments"], WEATHER["parameters"])
        assert set(call) == {"name", "arguments"}
    assert names == {"weather", "clock"}


@pytest.mark.parametrize("tools", [[], [3], [{"name": "a", "parameters": 4}], [{"parameters": {}}]])
def test_what_is_no_tool_is_refused(tools: list[Any]) -> None:
    with pytest.raises(GrammarError):
        Grammar.tools(tools)


LONG = {"enum": ["x" * MAX_GRAMMAR_BYTES]}


@pytest.mark.parametrize(
    "schema", ["[1, 2", "[" * 5000, "[]", "true", {"maximum": float("nan")}, LONG, {"const": "\ud800"}]
)
def test_what_is_no_schema_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(GrammarError):
        Grammar.json_schema(schema)


HOSTILE = {
    "no regular expression": Grammar.regex("(((("),
    "look-around": Grammar.regex("(?=a)b"),
    "nothing matches": Grammar.regex(r"[^\s\S]"),
    "nested repetitions": Grammar.regex("(((((a{1,99}){1,99}){1,99}){1,99}){1,99}){1,99}b"),
    "deep regular expression": Grammar.regex("(" * 30000 + "a" + ")" * 30000),
    "deep Lark": Grammar.lark("start: " + "(" * 30000 + '"x"' + ")" * 30000),
    "Lark without end": Grammar.lark('start: a\na: "x" a'),
    "endless recursion": Grammar.json_schema({"$ref": "#"}),
    "wide enum": Grammar.json_schema({"enum": [f"{n:x}" for n in range(9000)]}),
    "another type": Grammar.json_schema({"type": "banana"}),
    "a keyword that cannot be held": Grammar.json_schema({"type": "array", "uniqueItems": True}),
    "another file": Grammar.json_schema({"$ref": "http://example.com/schema"}),
    "no end in sight": Grammar.json_schema({"type": "string", "minLength": 10**9}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_one_clear_error_or_bounded(name: str) -> None:
    grammar = HOSTILE[name]
    try:
        ended = ShortEnding(byte_matcher(grammar), 4000, 100).rest is not None
    except GrammarError:
        return
    bounded = ("no end in sight", "Lark without end", "nothing matches", "endless recursion")
    assert name in (("nested repetitions", "wide enum") if ended else bounded)


def test_options_read_their_files(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text('{"type": "null"}')
    assert read_grammar(GrammarOptions()) is None
    assert read_grammar(GrammarOptions(json_schema=file)) == Grammar.json_schema({"type": "null"})
    assert read_grammar(GrammarOptions(grammar=file)) == Grammar.lark('{"type": "null"}')
    with pytest.raises(GrammarError):
        read_grammar(GrammarOptions(tools=file))
    file.write_text(json.dumps([WEATHER]))
    assert read_grammar(GrammarOptions(tools=file)) == Grammar.tools([WEATHER])
    with pytest.raises(GrammarError):
        read_grammar(GrammarOptions(json_schema=tmp_path / "none"))
    file.write_bytes(b"\xff")
    with pytest.raises(GrammarError):
        read_grammar(GrammarOptions(json_schema=file))


@pytest.mark.parametrize(
    ("grammar", "shortest"),
    [
        (Grammar.regex("[a-z]*foo"), "foo"),
        (Grammar.regex(".*x.*y"), "xy"),
        (Grammar.regex("(ab)*c{2,}"), "cc"),
        (Grammar.json_schema({"type": "array", "items": {}, "minItems": 2}), "[0, 0]"),
        (Grammar.json_schema({"type": "string", "pattern": "^v[0-9]+[.][0-9]$"}), '"v0.0"'),
    ],
)
def test_short_endings_are_the_shortest_where_that_is_known(grammar: Grammar, shortest: str) -> None:
    rest = ShortEnding(byte_matcher(grammar), 4000, 0).rest
    assert rest is not None
    assert len(rest) <= len(shortest.encode()) + 2 * (grammar.kind == "json-schema")
