"""Form: questions whose answers are chosen from lists, as a text with slots.

    form = Form.of({"type": "object", "properties": {"urgent": {"type": "boolean"}}})

Responsible for what a JSON Schema of booleans, enums, small integers and sets of enums asks, for its text,
and for the object that the chosen options make. Not responsible for reading probabilities (see `decisions`).

A form is the same on both sides: its text and options, and with them its identity, follow from the schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from common.files import json_object, read_json
from edge_runtime.errors import FormError

MAX_SLOTS, MAX_OPTIONS, MAX_TEXT = 64, 64, 4096
"""Most slots of a form, options of a slot, and bytes of UTF-8 of its template with all options."""

_KNOWN = {
    "object": {"properties", "required", "additionalProperties", "$schema", "$defs"},
    "boolean": set[str](),
    "integer": {"minimum", "maximum"},
    "enum": {"enum"},
    "array": {"items", "uniqueItems"},
}
_ANYWHERE = {"type", "title", "description", "default"}
_TYPES = {"string": str, "integer": int, "number": int, "boolean": bool, "null": NoneType}

_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))


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

    literals: the answer's text before each of the slots, and behind the last. says: what is asked, for the
    prompt. schema: that it comes from; empty for a form made by hand, which no service is asked about. Raises
    FormError outside the bounds above.
    """

    literals: tuple[str, ...]
    slots: tuple[Slot, ...]
    says: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        _require(0 < len(self.slots) <= MAX_SLOTS, "form", f"1 to {MAX_SLOTS} questions", len(self.slots))
        for slot in self.slots:
            size = len(slot.options)
            _require(1 < size <= MAX_OPTIONS, slot.name, f"2 to {MAX_OPTIONS} options", size)
            _require(len({*slot.options} - {""}) == size, slot.name, "options that differ", slot.options)
        size = len(self._text)
        _require(size <= MAX_TEXT, "form", f"at most {MAX_TEXT} bytes in all", size)

    @classmethod
    def of(cls, schema: Mapping[str, Any] | str | Path | type) -> Form:
        """The form of a JSON Schema (an object, its text, or a file), a dataclass or a pydantic model.

        Raises FormError for what is no list of options; `fill --json-schema` writes free text.
        """
        if isinstance(schema, type):
            schema = _schema_of(schema)
        elif isinstance(schema, Path):
            schema = read_json(schema, FormError)
        elif isinstance(schema, str):
            schema = json_object(schema, "form", FormError)
        return _compiled(schema)

    @classmethod
    def in_folder(cls, folder: Path | None) -> dict[str, Form]:
        """The forms of a folder's JSON Schemas (*.json), by name; raises FormError."""
        forms = [cls.of(path) for path in sorted(folder.glob("*.json"))] if folder else []
        _require(forms or folder is None, str(folder), "a folder with JSON Schemas, *.json", "none")
        return {form.name: form for form in forms}

    @cached_property
    def sizes(self) -> list[int]:
        """The number of options of each slot."""
        return [len(slot.options) for slot in self.slots]

    @cached_property
    def _text(self) -> bytes:
        """All that the form says (SPEC.md, "Decisions")."""
        slots = [(slot.name, slot.options, slot.says) for slot in self.slots]
        before = [part for pair in zip(self.literals[:-1], slots, strict=True) for part in pair]
        try:
            return _json([self.says, [*before, self.literals[-1]]]).encode()
        except UnicodeEncodeError as error:
            raise FormError(f"form: expected whole characters, found {error}") from None

    @cached_property
    def identity(self) -> bytes:
        """32 bytes that follow from all of it."""
        return hashlib.sha256(self._text).digest()

    @property
    def name(self) -> str:
        """The identity's first 8 hex digits, by which a form is asked for where both sides have it."""
        return self.identity[:4].hex()

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
            if slot.of_set:
                found.setdefault(slot.name, []).extend([slot.member] * slot.values[index])
            else:
                found[slot.name] = slot.values[index]
        return found

    def chosen(self, value: Mapping[str, Any]) -> list[int]:
        """The options that an object of the schema stands for; raises ValueError, KeyError or TypeError."""
        return [
            int(slot.member not in value[slot.name])
            if slot.of_set
            else [_json(each) for each in slot.values].index(_json(value[slot.name]))
            for slot in self.slots
        ]


def _require(fine: object, where: str, expected: str, found: object) -> None:
    if not fine:
        raise FormError(f"{where}: expected {expected}, found {found!r:.80}")


def _compiled(schema: Any) -> Form:
    _, schema = _checked(schema, "schema", {}, "object")
    properties, required = schema.get("properties"), schema.get("required", [])
    _require(isinstance(properties, Mapping), "schema", "an object with properties", properties)
    named = isinstance(required, list) and all(name in list(properties) for name in required)
    _require(named, "schema", "required to name properties", required)
    literals: list[str] = []
    slots: list[Slot] = []
    before = "{"
    for name, stated in properties.items():
        printable = isinstance(name, str) and name.isprintable()
        _require(printable, "schema", "printable names of properties", name)
        kind, asked = _checked(stated, name, schema, "boolean", "integer", "enum", "array")
        before, says = f"{before}{_json(name)}: ", asked["description"]
        if kind == "array":
            before += "{"
            for member in _values(name, *_checked(asked.get("items"), name, schema, "enum")):
                literal = _json(member if isinstance(member, str) else _json(member))
                slots.append(Slot(name, (" true", " false"), (True, False), says, member, of_set=True))
                literals.append(f"{before}{literal}:")
                before = ", "
            before = "}, "
        else:
            values = _values(name, kind, asked)
            quoted = all(isinstance(value, str) for value in values)
            options = tuple(_json(value)[1:-1] if quoted else f" {_json(value)}" for value in values)
            slots.append(Slot(name, options, tuple(values), says))
            literals.append(before + '"' if quoted else before[:-1])
            before = '"' * quoted + ", "
    return Form((*literals, before[:-2] + "}"), tuple(slots), schema["description"], schema)


def _checked(stated: Any, where: str, schema: Any, *kinds: str) -> tuple[str, dict[str, Any]]:
    """The kind of a schema, one of `kinds`, and the schema with a description and with the definition that it
    refers to in its place, as pydantic writes them. Keywords that ask what a form does not are refused.
    """
    _require(isinstance(stated, Mapping), where, "a JSON Schema, an object", stated)
    named, reference = schema.get("$defs"), str(stated.get("$ref", "")).removeprefix("#/$defs/")
    target = named.get(reference) if isinstance(named, Mapping) else None
    found = {"description": "", **(target if isinstance(target, Mapping) else {}), **stated}
    found.pop("$ref", None)
    kind = "enum" if "enum" in found else found.get("type", "object")
    expected = f"{' or '.join(kinds)} (text is written by edge_runtime.fill --json-schema)"
    _require(kind in kinds, where, expected, kind)
    unknown = ", ".join(sorted(map(str, found.keys() - _KNOWN[kind] - _ANYWHERE)))
    _require(not unknown, where, "keywords of a form", unknown)
    _require(isinstance(found["description"], str), where, "a description as text", found["description"])
    return kind, found


def _values(name: str, kind: str, asked: Mapping[str, Any]) -> list[Any]:
    """The values that one property, or a member of its set, may have."""
    if kind == "boolean":
        return [True, False]
    if kind == "integer":
        low, high = (asked.get(bound, 0.5) for bound in ("minimum", "maximum"))
        few = type(low) is int and type(high) is int and 0 < high - low < MAX_OPTIONS
        _require(few, name, f"minimum and maximum of 2 to {MAX_OPTIONS} whole numbers", (low, high))
        return list(range(low, high + 1))
    values, types = asked["enum"], [*_TYPES.values()]
    if "type" in asked:
        types = [_TYPES.get(str(asked["type"]), bytes)]
    fine = isinstance(values, list) and all(type(each) in types for each in values)
    fine = fine and all(type(each) is not int or abs(each) <= 2**53 for each in values)
    fine = fine and len(values) == len(set(map(_json, values)))
    _require(fine, name, "different strings, whole numbers, booleans or null, of its type", values)
    return list(values)


def _schema_of(kind: Any) -> Mapping[str, Any]:
    """The schema of a dataclass or a pydantic model."""
    if hasattr(kind, "model_json_schema"):
        return dict(kind.model_json_schema())
    _require(is_dataclass(kind), "form", "a JSON Schema, a dataclass or a pydantic model", kind)
    hints, says = get_type_hints(kind), kind.__doc__ or ""
    return {
        "description": "" if says.startswith(f"{kind.__name__}(") else says,
        "properties": {each.name: _property(each.name, hints[each.name]) for each in fields(kind)},
    }


def _property(name: str, hint: Any) -> Mapping[str, Any]:
    of, inner = get_origin(hint), get_args(hint)
    if hint is bool:
        return {"type": "boolean"}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [each.value for each in hint]}
    if of in (set, frozenset, list) and inner:
        return {"type": "array", "items": _property(name, inner[0])}
    _require(of is Literal, name, "bool, Literal (with None among its values), Enum or a set of these", hint)
    return {"enum": list(inner)}
