"""Grammar: what an answer has to be, as text: a JSON Schema, a regular expression, a Lark grammar, tools.

    grammar = Grammar.json_schema({"type": "object", "properties": {"name": {"type": "string"}}})

Responsible for reading them, for their identity, and for the rules that the engine of grammars (llguidance,
extra `grammar`) reads. Not responsible for tokens (see `matcher`).

Objects are written on one line, as `json.dumps` does by default, with their properties in the schema's order:
so most of what is no value is forced, and costs neither a pass of the model nor a byte of a payload. A
keyword that the engine cannot hold an answer to is refused, never ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from common.files import json_object
from common.installed import remedy
from edge_runtime.errors import GrammarError

MAX_GRAMMAR_BYTES = 1 << 16
"""Most bytes of a grammar's text."""

_ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Kind(StrEnum):
    """The language that a grammar is written in."""

    JSON_SCHEMA = "json-schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True)
class Grammar:
    """A grammar by its text; that of a schema is JSON without spaces, its keys in the given order.

    Raises GrammarError for a text of more than MAX_GRAMMAR_BYTES; one that is no such grammar is refused
    where it is compiled (`matcher.CompiledGrammar`).
    """

    kind: Kind
    text: str

    def __post_init__(self) -> None:
        try:
            size = len(self.text.encode("utf-8"))
        except UnicodeEncodeError:
            raise GrammarError(
                f"{self.kind}: expected Unicode, found half of a surrogate pair. Write that character whole."
            ) from None
        if not 0 < size <= MAX_GRAMMAR_BYTES:
            raise GrammarError(
                f"{self.kind}: expected 1 to {MAX_GRAMMAR_BYTES} bytes, found {size}. Ask for less at once."
            )

    @classmethod
    def json_schema(cls, schema: str | Mapping[str, Any]) -> Grammar:
        """A JSON Schema, parsed or as text. Raises GrammarError where it is no JSON object."""
        if isinstance(schema, str):
            schema = json_object(schema, "JSON Schema", GrammarError)
        elif not isinstance(schema, Mapping):
            raise GrammarError(f"JSON Schema: expected an object, found {schema!r:.60}")
        return cls(Kind.JSON_SCHEMA, _json(schema))

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """A regular expression (of Rust's `regex`, without look-around) that the whole answer matches."""
        return cls(Kind.REGEX, pattern)

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """A context-free grammar in llguidance's dialect of Lark; `start` is an answer."""
        return cls(Kind.LARK, text)

    @classmethod
    def tools(cls, tools: Sequence[Mapping[str, Any]]) -> Grammar:
        """A call of one tool: {"name": ..., "arguments": {...}}.

        tools: each with `name` and a JSON Schema as `parameters`, or such an object as `function` (OpenAI's
        form). Raises GrammarError.
        """
        calls, parameters = [], {}
        for index, tool in enumerate(tools):
            named = tool.get("function", tool) if isinstance(tool, Mapping) else {}
            name = named.get("name") if isinstance(named, Mapping) else None
            schema = named.get("parameters", {}) if name else None
            if not isinstance(name, str) or not isinstance(schema, Mapping):
                raise GrammarError(
                    f"tool {index}: expected an object with a name and a JSON Schema as parameters, found "
                    f"{tool!r:.60}"
                )
            arguments = {"type": "object", **_below(schema, f"#/$defs/{index}")}
            parameters[str(index)] = arguments
            calls.append(_call(name, {"$ref": f"#/$defs/{index}"}))
        if not calls:
            raise GrammarError("tools: expected at least one, found none")
        return cls.json_schema({"anyOf": calls, "$defs": parameters})

    @cached_property
    def identity(self) -> str:
        """SHA-256 (hex) of kind and text."""
        return hashlib.sha256(f"{self.kind}\0{self.text}".encode()).hexdigest()

    def rules(self) -> str:
        """The grammar as llguidance reads it. Raises GrammarError."""
        matcher = library().LLMatcher
        if self.kind is Kind.REGEX:
            return str(matcher.grammar_from_regex(self.text))
        if self.kind is Kind.LARK:
            return str(matcher.grammar_from_lark(self.text))
        try:
            return str(matcher.grammar_from_json_schema(self.text, overrides=_ONE_LINE))
        except ValueError as error:
            raise GrammarError(f"{self}: {error}") from None

    def __str__(self) -> str:
        return f"{self.kind} {self.identity[:8]}"


def library() -> Any:
    """The module llguidance; raises GrammarError where it is not installed."""
    try:
        import llguidance
    except ModuleNotFoundError:
        raise GrammarError(
            f"grammar: expected the package llguidance, found none: {remedy('grammar')}"
        ) from None
    return llguidance


def _json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise GrammarError(f"JSON Schema: expected what JSON can hold, found: {error}") from None


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _below(value: Any, root: str) -> Any:
    """A schema that has moved to `root` of another: its references to itself follow."""
    if isinstance(value, Mapping):
        return {
            key: root + part[1:]
            if key == "$ref" and isinstance(part, str) and part.startswith("#")
            else _below(part, root)
            for key, part in value.items()
        }
    return [_below(part, root) for part in value] if isinstance(value, list) else value
