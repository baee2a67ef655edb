"""Random JSON Schemas that have a valid value, of the keywords that people write."""

from __future__ import annotations

from random import Random
from typing import Any

Schema = dict[str, Any]

NAMES = ("name", "größe", "a b", "x-1", "next", 'quo"te', "日本", "type")
PATTERNS = ("^[a-z]{2,5}$", "^[0-9]{3}-[0-9]{2}$", "^(yes|no)$", "^v[0-9]+[.][0-9]+$")
FORMATS = ("date", "ipv4", "uuid")
DEEPEST = 3


def random_schema(random: Random, depth: int = 0) -> Schema:
    """A schema; at the top with definitions that its parts refer to, one of them perhaps recursive."""
    if depth:
        return _part(random, depth)
    schema = _part(random, 1) if random.random() < 0.3 else _object(random, 1)
    schema["$defs"] = {"leaf": _scalar(random), "tree": _tree(random)}
    return schema


def _part(random: Random, depth: int) -> Schema:
    if depth >= DEEPEST:
        return random.choice((_scalar(random), {"$ref": "#/$defs/leaf"}))
    kind = random.choice((_scalar, _scalar, _scalar, _object, _array, _either, _reference))
    return kind(random, depth)


def _reference(random: Random, depth: int) -> Schema:
    return {"$ref": random.choice(("#/$defs/leaf", "#/$defs/tree"))}


def _either(random: Random, depth: int) -> Schema:
    return {"anyOf": [_part(random, depth + 1) for _ in range(random.randint(2, 3))]}


def _tree(random: Random) -> Schema:
    return {
        "type": "object",
        "properties": {
            "label": _scalar(random),
            "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 3},
        },
        "required": random.choice((["label"], ["label", "children"])),
        "additionalProperties": False,
    }


def _object(random: Random, depth: int = 0) -> Schema:
    names = random.sample(NAMES, random.randint(0, 5))
    schema: Schema = {
        "type": "object",
        "properties": {name: _part(random, depth + 1) for name in names},
        "required": [name for name in names if random.random() < 0.6],
    }
    more = random.choice((False, False, True, {"type": "integer"}))
    if more is not True:
        schema["additionalProperties"] = more
    if random.random() < 0.2:
        schema["description"] = "what people write about it"
    return schema


def _array(random: Random, depth: int) -> Schema:
    schema: Schema = {"type": "array", "items": _part(random, depth + 1)}
    least = random.choice((0, 0, 1, 3))
    if least:
        schema["minItems"] = least
    if random.random() < 0.5:
        schema["maxItems"] = least + random.randint(0, 4)
    if random.random() < 0.2:
        schema["prefixItems"] = [_part(random, depth + 1) for _ in range(random.randint(1, 2))]
        schema["maxItems"] = max(3, schema.get("maxItems", 3))
    return schema


def _scalar(random: Random, depth: int = 0) -> Schema:
    kind = random.randrange(11)
    if kind == 0:
        return {"enum": random.sample(["red", "grün", 'ein "Wort"', 3, 4.5, None, True, {"a": [1]}], 3)}
    if kind == 1:
        return {"const": random.choice(("fixed", 7, False, [1, 2], {"k": "v"}))}
    if kind == 2:
        return {"type": random.choice(("boolean", "null"))}
    if kind in (3, 4):
        return _number(random, "integer")
    if kind == 5:
        return _number(random, "number")
    if kind == 6:
        return {"type": "string", "pattern": random.choice(PATTERNS)}
    if kind == 7:
        return {"type": "string", "format": random.choice(FORMATS)}
    if kind == 8:
        return {"type": ["string", "null"]}
    schema: Schema = {"type": "string"}
    if random.random() < 0.5:
        schema["minLength"] = random.randint(0, 12)
    if random.random() < 0.5:
        schema["maxLength"] = schema.get("minLength", 0) + random.randint(1, 20)
    return schema


def _number(random: Random, kind: str) -> Schema:
    schema: Schema = {"type": kind}
    low = random.randint(-500, 500)
    if random.random() < 0.5:
        schema[random.choice(("minimum", "exclusiveMinimum"))] = low
    if random.random() < 0.5:
        schema[random.choice(("maximum", "exclusiveMaximum"))] = low + random.randint(3, 1000)
    if kind == "integer" and len(schema) == 1 and random.random() < 0.4:
        schema["multipleOf"] = random.choice((2, 5, 7, 10))
    return schema
