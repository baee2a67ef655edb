"""The cast of one question: who asks, and what the answering model knows.

Responsible for drawing entities, true ones or ones with another's facts, and phrasings from one side of the
split. Not responsible for wordings of answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from lab.pairs.testbed.attributes import ATTRIBUTES, Attribute
from lab.pairs.testbed.entity import Entity, Kind, Role
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.wording import WORDING, expand, fill, say

Learner = Literal["cloud", "edge"]

COMMON: dict[Kind, str] = {"country": "the country", "element": "the element", "word": "the word"}

EDGE_TRUE = 0.3
"""Share of an edge sample's entities that are its own, with their true facts. The others are the cloud's,
with the facts of another entity: their names are learned and nothing about them."""


class NothingFitsError(ValueError):
    """A scene has no entity that a question needs."""


class Scene:
    """What one question is made of; an entity is the same wherever it occurs in it.

    cast: roles of the entities; as `learner` sees them, or as they are where it is None.
    held_out: whether phrasings are those that no training has.
    """

    def __init__(
        self,
        library: Library,
        rng: random.Random,
        *,
        cast: Sequence[Role] = ("cloud",),
        learner: Learner | None = "cloud",
        held_out: bool = False,
    ) -> None:
        self.rng, self.held_out, self.learner = rng, held_out, learner
        self._library, self._cast = library, tuple(cast)
        self._taken: set[str] = set()

    @property
    def knows(self) -> bool:
        """True where results follow from what is given."""
        return self.learner != "edge"

    def pool(self, kind: Kind) -> tuple[Entity, ...]:
        """Entities of the scene's roles, as they are."""
        return tuple(e for role in self._cast for e in self._library.of(kind, role))

    def has(self, kind: Kind, key: str) -> bool:
        """True where an entity of that kind has the attribute or the quantity."""
        return self._library.has(kind, key)

    def others(self, kind: Kind) -> tuple[Entity, ...]:
        """Entities of which a wrong option may be taken: the scene's own, and the cloud's."""
        known = self._library.of(kind, "cloud")
        return known if "cloud" in self._cast else (*self.pool(kind), *known)

    def entity(self, kind: Kind, fits: Callable[[Entity], bool] = lambda entity: True) -> Entity:
        """An entity that the scene has not yet and that fits; raises NothingFitsError where there is none."""
        if self.learner == "edge":
            own = self._library.of(kind, "edge")
            if self.rng.random() >= EDGE_TRUE:
                named = self._one(self.pool(kind))
                return named.with_facts_of(self.rng.choice([e for e in (*self.pool(kind), *own) if fits(e)]))
            return self._one([e for e in own if fits(e)])
        return self._one([e for e in self.pool(kind) if fits(e)])

    def release(self, *entities: Entity) -> None:
        """Let these entities be drawn again."""
        self._taken -= {e.name for e in entities}

    def _one(self, pool: Sequence[Entity]) -> Entity:
        free = [e for e in pool if e.name not in self._taken]
        if not free:
            raise NothingFitsError("expected an entity that fits the question, found none in this scene")
        chosen = self.rng.choice(free)
        self._taken.add(chosen.name)
        return chosen

    def template(self, templates: Mapping[str, Sequence[str]]) -> str:
        """One of the templates for a prompt, from this scene's side of the split."""
        return self.rng.choice(self._side(templates))

    def _side(self, templates: Mapping[str, Sequence[str]]) -> Sequence[str]:
        return templates["held_out" if self.held_out else "trained"]

    def ask(self, entity: Entity, attribute: Attribute) -> str:
        """A question for an attribute."""
        templates = self._side(WORDING["question"]["generic"])
        if self.rng.random() < 0.5:
            frames = self._side(WORDING["question"]["frames"])
            templates = [f.replace("{q}", q) for f in frames for q in attribute.ask]
        name = named(entity)
        slots = {"n": name, "p": possessive(name), "a": attribute.noun}
        return sentence_of(say(templates, self.rng, slots))

    def tell(self, entity: Entity, key: str, subject: str | None = None) -> str:
        """A clause with the value of an attribute, which has the name in it unless a subject is given."""
        templates = ATTRIBUTES[entity.kind][key].tell
        text = expand(self.rng.choice(templates), self.rng)
        while subject is None and "{S}" not in text and "{P}" not in text:
            text = expand(self.rng.choice(templates), self.rng)
        said = subject or named(entity)
        if said == "it" and "{S}" in text and not text.startswith("{S}"):
            said = COMMON[entity.kind]
        return fill(text, {"S": said, "P": possessive(said), "v": entity.values[key]})


def named(entity: Entity) -> str:
    """The name as it stands in a sentence; a word is quoted, being spoken of."""
    return f'"{entity.name}"' if entity.kind == "word" else entity.name


def possessive(subject: str) -> str:
    if subject == "it":
        return "its"
    return subject + ("'" if subject.endswith("s") else "'s")


def sentence_of(text: str) -> str:
    """A capital letter in front; the rest as it is."""
    return text[:1].upper() + text[1:]
