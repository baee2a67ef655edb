"""One fact of a country or an element, in a sentence."""

from __future__ import annotations

from lab.pairs.problem import Problem
from lab.pairs.testbed.attributes import ATTRIBUTES
from lab.pairs.testbed.entity import Kind
from lab.pairs.testbed.scene import Scene
from lab.pairs.testbed.wording import WORDING, say, sentence

_KINDS: dict[Kind, float] = {"country": 0.6, "element": 0.3, "word": 0.1}
_SAY = WORDING["fact"]
_SECOND = 0.3
"""Share of answers with a second fact, which was not asked for."""


def draw(scene: Scene) -> Problem:
    """Expected is the value of the attribute asked for."""
    rng = scene.rng
    kind: Kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    entity = scene.entity(kind)
    keys = [key for key in entity.values if key in ATTRIBUTES[kind] and key != "gloss"]
    attribute = ATTRIBUTES[kind][rng.choice(keys)]
    prompt = scene.ask(entity, attribute)
    text = say(_SAY["frames"], rng, {"t": scene.tell(entity, attribute.key)}).replace(" that,", " that")
    others = [key for key in keys if key != attribute.key]
    if others and rng.random() < _SECOND:
        text = say(_SAY["joined"], rng, {"a": text, "b": scene.tell(entity, rng.choice(others), "it")})
    return Problem(
        family="fact",
        difficulty="easy",
        prompt=prompt,
        answer=sentence(text),
        expected=(entity.values[attribute.key],),
        key=f"{kind}/{entity.name}/{attribute.key}",
        split=False,
        subject=entity.name,
    )
