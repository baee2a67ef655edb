"""What can be asked and told of an entity, attribute by attribute, in templates (see `wording`).

Responsible for nouns, questions and clauses, and for the attributes' order, which is that of a profile's
circle. Not responsible for whole answers (see `kinds`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.pairs.testbed.entity import Kind
from lab.pairs.testbed.wording import WORDING


@dataclass(frozen=True)
class Attribute:
    """One attribute of a kind of entity.

    noun:  what is asked for, behind "the".
    ask:   questions with the slot {n}.
    tell:  clauses.
    """

    key: str
    noun: str
    ask: list[str]
    tell: list[str]


ATTRIBUTES: dict[Kind, dict[str, Attribute]] = {
    kind: {key: Attribute(key, **fields) for key, fields in attributes.items()}
    for kind, attributes in WORDING["attributes"].items()
}

HEADLINES: dict[Kind, tuple[str, ...]] = {
    "country": ("region", "capital"),
    "element": ("symbol", "number"),
    "word": ("gloss",),
}
"""The attributes that a description always has when none is asked for, where the entity has them."""
