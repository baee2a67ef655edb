"""Templates with alternatives, of which one is drawn for every answer; the testbed's: `wording.toml`.

Responsible for the notation `[this|that [one|]]`, nested at will, and for the pattern that matches all that a
template can say. Not responsible for what is said.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

WORDING: dict[str, Any] = tomllib.loads((Path(__file__).parent / "wording.toml").read_text(encoding="utf-8"))
"""All templates of the testbed, by kind of question, and its attributes and quantities."""

_INNER = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


def expand(template: str, rng: random.Random) -> str:
    """The template with one alternative drawn at each bracket; its slots `{name}` stay."""
    while found := _INNER.search(template):
        template = template[: found.start()] + rng.choice(found[1].split("|")) + template[found.end() :]
    return template


def variants(template: str) -> Iterator[str]:
    """Everything that `expand` can return, each text as often as there are ways to it."""
    found = _INNER.search(template)
    if not found:
        yield template
        return
    for choice in found[1].split("|"):
        yield from variants(template[: found.start()] + choice + template[found.end() :])


def say(templates: Sequence[str], rng: random.Random, slots: Mapping[str, str]) -> str:
    """One of the templates, expanded and filled."""
    return fill(expand(rng.choice(templates), rng), slots)


def fill(text: str, slots: Mapping[str, str]) -> str:
    """The text with its slots filled."""
    return _SLOT.sub(lambda slot: slots[slot[1]], text)


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def sentences(text: str) -> str:
    """Each of the sentences with a capital letter and a full stop."""
    return " ".join(sentence(part) for part in text.rstrip(".").split(". "))


def pattern(template: str, slots: Mapping[str, str]) -> str:
    """A regular expression for all variants of a template; `slots` are expressions themselves."""
    pieces = []
    for part in re.split(r"([\[\]|]|\{\w+\})", template):
        if part in ("[", "]", "|"):
            pieces.append({"[": "(?:", "]": ")", "|": "|"}[part])
        elif slot := _SLOT.fullmatch(part):
            pieces.append(slots[slot[1]])
        else:
            pieces.append(re.escape(part))
    return "".join(pieces)
