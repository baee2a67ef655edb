"""Form: questions whose answers are chosen from lists, as a text with slots.

    form = Form.of({"type": "object", "properties": {"urgent": {"type": "boolean"}}})

Responsible for what a JSON Schema of booleans, enums, small integers and sets of enums asks, for its text,
and for the object that the chosen options make. Not responsible for reading probabilities (see `reading`).

A form is the same on both sides: its text and options, and with them its identity, follow from the schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from common.files import read_text
from edge_runtime.errors import FormError

MAX_SLOTS, MAX_OPTIONS, MAX_TEXT = 64, 64, 4096
"""Most slots of a form, options of a slot, and characters of its template with all options."""

_KNOWN = {
    "object": {"properties", "required", "additionalProperties", "$schema"},
    "boolean": set[str](),
    "integer": {"minimum", "maximum"},
    "array": {"items", "uniqueItems"},
    "enum": {"enum"},
}
_ANYWHERE = {"type", "title", "description"}


@dataclass(frozen=True)
class Slot:
    """One question. name: of the property; says: its description. options: the texts that may stand there,
    and the values they stand for. of_set: it asks whether `member` is one of a set; its values are booleans.
    """

    name: str
    options: tuple[str, ...]
    values: tuple[Any, ...]
    says: str = ""
    member: Any = None
    of_set: bool = False

    @property
    def title(self) -> str:
        return self.name if not self.of_set else f"{self.name}: {self.member}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The options without the space that may stand before them."""
        return tuple(option.strip() or option for option in self.options)


@dataclass(frozen=True)
class Form:
    """Questions with listed options, as a text with slots.

    parts: the answer's text in order, literals and slots. says: what is asked, for the prompt. schema: that
    it comes from; empty for a form made by hand, which no service is asked about. Raises FormError outside
    the bounds above.
    """

    parts: tuple[str | Slot, ...]
    says: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        slots = self.slots
        texts = [text for part in self.parts for text in ([part] if isinstance(part, str) else part.options)]
        size = sum(map(len, texts)) + len(self.says) + sum(len(slot.says) for slot in slots)
        if not 0 < len(slots) <= MAX_SLOTS:
            raise FormError(f"form: expected 1 to {MAX_SLOTS} questions, found {len(slots)}")
        for slot in slots:
            if not 1 < len(slot.options) <= MAX_OPTIONS:
                raise FormError(
                    f"{slot.name}: expected 2 to {MAX_OPTIONS} options, found {len(slot.options)}"
                )
            if len(set(slot.options)) < len(slot.options) or "" in slot.options:
                raise FormError(f"{slot.name}: expected options that differ, found {slot.options!r:.80}")
        if size > MAX_TEXT:
            raise FormError(f"form: expected at most {MAX_TEXT} characters in all, found {size}")

    @classmethod
    def of(cls, schema: Mapping[str, Any] | str | Path | type) -> Form:
        """The form of a JSON Schema (an object, its text, or a file), a dataclass or a pydantic model.

        Raises FormError for what is no list of options; `fill --json-schema` writes free text.
        """
        if isinstance(schema, type):
            schema = _schema_of(schema)
        if isinstance(schema, Path):
            schema = read_text(schema, FormError)
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError) as error:
                raise FormError(f"form: expected a JSON Schema, found: {error}") from None
        if not isinstance(schema, Mapping):
            raise FormError(f"form: expected a JSON Schema, an object, found {schema!r:.60}")
        return _compiled(schema)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(part for part in self.parts if isinstance(part, Slot))

    @cached_property
    def identity(self) -> bytes:
        """SHA-256 of all that the form says."""
        parts = [
            part if isinstance(part, str) else [part.name, part.options, part.says] for part in self.parts
        ]
        return hashlib.sha256(json.dumps([self.says, parts]).encode()).digest()

    def question(self, text: str) -> str:
        """The prompt that asks the form's questions about a text."""
        asked: dict[str, str] = {}
        for slot in self.slots:
            options = [str(slot.member)] if slot.of_set else slot.labels
            line = asked.get(slot.name, f"- {slot.name}{slot.says and f' ({slot.says})'}: ")
            asked[slot.name] = line + (", " if slot.name in asked else "") + ", ".join(options)
        return "\n".join([self.says or "Answer the questions about the text.", *asked.values(), "", text])

    def value(self, chosen: Sequence[int]) -> dict[str, Any]:
        """The object that the chosen options make, one per slot: valid under the schema."""
        found: dict[str, Any] = {}
        for slot, index in zip(self.slots, chosen, strict=True):
            value = slot.values[index]
            if not slot.of_set:
                found[slot.name] = value
            else:
                found.setdefault(slot.name, []).extend([slot.member] if value else [])
        return found


def _compiled(schema: Mapping[str, Any]) -> Form:
    _check(schema, "object", "schema")
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping) or not properties:
        raise FormError("schema: expected type object with properties, found none")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(name in properties for name in required):
        raise FormError(f"schema: expected required to name properties, found {required!r:.60}")
    parts: list[str | Slot] = []
    before = "{"
    for name, asked in properties.items():
        if not isinstance(name, str) or not name.isprintable():
            raise FormError(f"schema: expected printable names of properties, found {name!r:.60}")
        if not isinstance(asked, Mapping):
            raise FormError(f"{name}: expected a JSON Schema, an object, found {asked!r:.60}")
        before += f"{json.dumps(name, ensure_ascii=False)}:"
        if asked.get("type") == "array":
            before = _members(name, asked, parts, before)
        else:
            before = _choice(name, asked, parts, before)
        before += ", "
    return Form((*parts, before[:-2] + "}"), _text(schema, "description", "schema"), schema)


def _choice(name: str, asked: Mapping[str, Any], parts: list[str | Slot], before: str) -> str:
    """Adds the slot of one property; returns the literal text behind it."""
    values = _values(name, asked)
    quoted = all(isinstance(value, str) for value in values)
    texts = [json.dumps(value, ensure_ascii=False) for value in values]
    options = tuple(text[1:-1] if quoted else f" {text}" for text in texts)
    slot = Slot(name, options, tuple(values), _text(asked, "description", name))
    parts += [f'{before} "' if quoted else before, slot]
    return '"' if quoted else ""


def _members(name: str, asked: Mapping[str, Any], parts: list[str | Slot], before: str) -> str:
    """Adds a slot for each member of a set, true or false; returns the literal text behind them."""
    _check(asked, "array", name)
    items, says = asked.get("items"), _text(asked, "description", name)
    if not isinstance(items, Mapping) or "enum" not in items:
        raise FormError(f"{name}: expected items with an enum, found {items!r:.60}")
    before += " {"
    for member in _values(name, items):
        literal = f"{before}{json.dumps(member if isinstance(member, str) else json.dumps(member))}:"
        parts += [literal, Slot(name, (" true", " false"), (True, False), says, member, of_set=True)]
        before = ", "
    return "}"


def _values(name: str, asked: Mapping[str, Any]) -> list[Any]:
    """The values that one property may have."""
    kind = "enum" if "enum" in asked else asked.get("type")
    if kind not in ("enum", "boolean", "integer"):
        raise FormError(
            f"{name}: expected a boolean, an enum, an integer with bounds, or an array of an enum, "
            f"found {kind or asked!r:.60}; free text is written by edge_runtime.fill --json-schema"
        )
    _check(asked, str(kind), name)
    if kind == "boolean":
        return [True, False]
    if kind == "integer":
        low, high = asked.get("minimum"), asked.get("maximum")
        if type(low) is not int or type(high) is not int or not 0 < high - low < MAX_OPTIONS:
            raise FormError(
                f"{name}: expected whole numbers as minimum and maximum, 2 to {MAX_OPTIONS} values, "
                f"found {low!r:.40} to {high!r:.40}"
            )
        return list(range(low, high + 1))
    values = asked["enum"] if "enum" in asked else [asked["const"]]
    scalar = isinstance(values, list) and all(isinstance(v, str | int | float | None) for v in values)
    if not scalar or len(values) != len({json.dumps(value) for value in values}):
        raise FormError(
            f"{name}: expected an enum of different strings, numbers or booleans, found {values!r:.60}"
        )
    types: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": NoneType,
    }
    if "type" in asked and not all(isinstance(value, types.get(asked["type"], ())) for value in values):
        raise FormError(f"{name}: expected an enum of type {asked['type']!r:.40}, found {values!r:.60}")
    if any(isinstance(value, float) and value - value != 0 for value in values):
        raise FormError(f"{name}: expected finite numbers, found {values!r:.60}")
    return values


def _check(schema: Mapping[str, Any], kind: str, where: str) -> None:
    """Refuses keywords that a form does not hold its answers to."""
    if unknown := sorted(map(str, schema.keys() - _KNOWN[kind] - _ANYWHERE)):
        raise FormError(f"{where}: expected keywords of a form, found {', '.join(unknown)!r:.80}")


def _text(schema: Mapping[str, Any], key: str, where: str) -> str:
    value = schema.get(key, "")
    if not isinstance(value, str):
        raise FormError(f"{where}: expected {key} to be text, found {value!r:.60}")
    return value


def _schema_of(kind: type) -> Mapping[str, Any]:
    """The schema of a dataclass or a pydantic model."""
    if hasattr(kind, "model_json_schema"):
        found: Mapping[str, Any] = kind.model_json_schema()
        properties = {name: _inlined(asked, found) for name, asked in found["properties"].items()}
        return {"type": "object", "description": found.get("description", ""), "properties": properties}
    if not is_dataclass(kind):
        raise FormError(
            f"form: expected a JSON Schema, a dataclass or a pydantic model, found {kind.__name__}"
        )
    hints = get_type_hints(kind)
    says = (
        {"description": kind.__doc__} if kind.__doc__ and not kind.__doc__.startswith(kind.__name__) else {}
    )
    properties = {each.name: _property(each.name, hints[each.name]) for each in fields(kind)}
    return {"type": "object", **says, "properties": properties}


def _property(name: str, hint: Any) -> Mapping[str, Any]:
    if hint is bool:
        return {"type": "boolean"}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [each.value for each in hint]}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) in (set, frozenset, list) and get_args(hint):
        return {"type": "array", "items": _property(name, get_args(hint)[0])}
    if get_origin(hint) in (Union, UnionType):
        raise FormError(f"{name}: expected one type, found {hint}; use Literal with None among its values")
    raise FormError(f"{name}: expected bool, Literal, an Enum or a set of these, found {hint}")


def _inlined(asked: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property of a pydantic schema, with the enum that it refers to in its place."""
    if "items" in asked:
        return {**asked, "items": _inlined(asked["items"], schema)}
    target = schema.get("$defs", {}).get(str(asked.get("$ref", "")).removeprefix("#/$defs/"), {})
    rest = {key: value for key, value in asked.items() if key not in ("$ref", "default")}
    return {**target, **rest}
