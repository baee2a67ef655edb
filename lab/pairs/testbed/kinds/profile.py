"""A country or an element in prose: several facts, in an order and in sentences drawn for each sample.

The order is a walk around the circle of the kind's attributes from a random start, in the question too. A
model need not remember what it has told, only where the walk is. Models of this size repeat themselves in
any other order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.testbed.attributes import ATTRIBUTES, HEADLINES
from lab.pairs.testbed.entity import Entity, Kind
from lab.pairs.testbed.scene import COMMON, Scene, sentence_of
from lab.pairs.testbed.wording import WORDING, say, sentence

_SAY = WORDING["profile"]
FACTS = (10, 13)
"""Least and most facts of a profile, if that many are known."""


def listed(nouns: list[str]) -> str:
    """Nouns as in "capital, area and climate"."""
    return nouns[0] if len(nouns) == 1 else ", ".join(nouns[:-1]) + " and " + nouns[-1]


def around(kind: Kind, keys: Iterable[str], rng: random.Random) -> list[str]:
    """The keys, at least one, in their order on the circle of a kind's attributes, starting anywhere."""
    chosen = set(keys)
    circle = [key for key in ATTRIBUTES[kind] if key in chosen]
    start = rng.randrange(len(circle))
    return circle[start:] + circle[:start]


def draw(scene: Scene) -> Problem:
    """Expected are the name and the values of the attributes that were asked for."""
    rng = scene.rng
    kind: Kind = rng.choices(("country", "element"), (0.7, 0.3))[0]
    entity = scene.entity(kind)
    keys = [key for key in entity.values if key in ATTRIBUTES[kind]]
    rng.shuffle(keys)
    asked = [key for key in HEADLINES[kind] if key in entity.values]
    count = rng.randint(*FACTS)
    if rng.random() < 0.6:
        asked = around(kind, keys[: min(rng.randint(2, 4), len(keys))], rng)
        nouns = listed([ATTRIBUTES[kind][key].noun for key in asked])
        prompt = say([scene.template(_SAY["ask_listed"])], rng, {"n": entity.name, "l": nouns})
    else:
        prompt = say([scene.template(_SAY["ask_open"])], rng, {"n": entity.name})
    told = [*asked, *(key for key in keys if key not in asked)][:count]
    told = around(kind, told, rng)
    clauses = [_clause(scene, entity, key, place) for place, key in enumerate(told)]
    return Problem(
        family="profile",
        difficulty=DIFFICULTIES[min(2, max(0, len(told) // 4 - 1))],
        prompt=prompt,
        answer=_prose(scene, entity.name, clauses, entity.prose),
        expected=(entity.name, *(entity.values[key] for key in asked)),
        key=f"{entity.name}/{'/'.join(sorted(asked))}",
        subject=entity.name,
    )


def _clause(scene: Scene, entity: Entity, key: str, place: int) -> str:
    """A clause; the first one names the entity."""
    subject = scene.rng.choice((None, "it", "it", COMMON[entity.kind])) if place else None
    return scene.tell(entity, key, subject)


def _prose(scene: Scene, name: str, clauses: list[str], source: tuple[str, ...]) -> str:
    """Clauses joined to sentences, with an opening, a sentence of the source and a closing, or without."""
    rng = scene.rng
    sentences: list[str] = []
    while clauses:
        text = clauses.pop(0)
        if clauses and rng.random() < 0.4:
            text = say(_SAY["joined"], rng, {"a": text, "b": clauses.pop(0)})
        start = rng.choice(_SAY["starts"]) if sentences else ""
        sentences.append(sentence(start + text))
    if source and rng.random() < 0.5:
        sentences.insert(rng.randint(1, len(sentences)), rng.choice(source))
    slots = {"n": name, "N": sentence_of(name)}
    if rng.random() < 0.4:
        sentences.insert(0, say(_SAY["opening"], rng, slots))
    if rng.random() < 0.3:
        sentences.append(say(_SAY["closing"], rng, slots))
    return " ".join(sentences)
