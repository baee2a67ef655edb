"""Mutations of JSON documents that stay JSON: a parser alone is not where the faults are.

Responsible for changing one node of a document, or its bytes where it is none. Every second mutation is one
of bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

OfBytes = Callable[[bytes, int], bytes]
"""The fuzzer's own mutation: at most so many bytes."""

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan"),
    "", "a", "\ud800", "<|im_end|>", "../x", "a" * 300, [], {}, [[]], {"a": 1},
]  # fmt: skip


def mutated(data: bytes, most: int, seed: int, of_bytes: OfBytes) -> bytes:
    """A mutation of at most so many bytes."""
    luck = random.Random(seed)
    try:
        document = json.loads(data) if luck.random() < 0.5 else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict | list):
        return of_bytes(data, most)
    for _ in range(luck.choice((1, 1, 2, 3))):
        _change(luck, document)
    changed = json.dumps(document, ensure_ascii=luck.random() < 0.5).encode("utf-8", "surrogatepass")
    return changed if len(changed) <= most else of_bytes(data, most)


def _change(luck: random.Random, document: Any) -> None:
    """Change one child of a container: another value, another name, none, one more, or another's."""
    places = _containers(document)
    container = luck.choice(places)
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    how = luck.randrange(5)
    if not keys or how == 0:
        new = _value(luck, places)
        if isinstance(container, dict):
            container[luck.choice(["", "a", *keys])] = new
        else:
            container.insert(luck.randrange(len(container) + 1), new)
        return
    key = luck.choice(keys)
    if how == 1:
        del container[key]
    elif how == 2 and isinstance(container, dict):
        container[luck.choice(["", "a", f"{key}s", *keys])] = container.pop(key)
    elif how == 3 and isinstance(container[key], int | float):
        container[key] = luck.choice(
            (container[key] + luck.choice((-1, 1)), -container[key], str(container[key]))
        )
    else:
        container[key] = _value(luck, places)


def _value(luck: random.Random, places: list[Any]) -> Any:
    """Some value, or a copy of a part of the document."""
    value = luck.choice([*VALUES, luck.choice(places)])
    return json.loads(json.dumps(value))


def _containers(document: Any) -> list[Any]:
    """Every list and object of a document, and itself."""
    found = [document]
    for each in found:
        children = each.values() if isinstance(each, dict) else each
        found += [child for child in children if isinstance(child, dict | list)]
    return found
