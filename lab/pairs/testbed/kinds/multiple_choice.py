"""Four options for an attribute, the right one with a reason."""

from __future__ import annotations

from lab.pairs.problem import Problem
from lab.pairs.testbed.attributes import ATTRIBUTES
from lab.pairs.testbed.entity import Kind
from lab.pairs.testbed.scene import Scene
from lab.pairs.testbed.wording import WORDING, say, sentence
from lab.pairs.tiny.tasks.choice import LETTERS

_SAY = WORDING["choice"]
_ATTRIBUTES: dict[Kind, list[str]] = {
    "country": "capital region currency language peak export crop climate government".split(),
    "element": "symbol series discoverer place look".split(),
    "word": "parent topic gloss".split(),
}
# A letter follows its option, in the question too: see tiny.tasks.choice.


def draw(scene: Scene) -> Problem:
    """Expected are the letter and the option."""
    rng = scene.rng
    kind: Kind = rng.choices(("country", "element", "word"), (0.5, 0.2, 0.3))[0]
    key = rng.choice([key for key in _ATTRIBUTES[kind] if scene.has(kind, key)])
    entity = scene.entity(kind, lambda e: key in e.values)
    right = entity.values[key]
    others = sorted({e.values[key] for e in scene.others(kind) if key in e.values} - {right})
    options = [*rng.sample(others, 3), right]
    rng.shuffle(options)
    letter = LETTERS[options.index(right)]
    shown = "\n".join(f"- {option} ({x})" for x, option in zip(LETTERS, options, strict=True))
    prompt = (
        scene.ask(entity, ATTRIBUTES[kind][key])
        + "\n"
        + say([scene.template(_SAY["lists"])], rng, {"o": shown})
    )
    text = say(_SAY["forms"], rng, {"r": scene.tell(entity, key), "a": f"{right} ({letter})"})
    return Problem(
        family="choice",
        difficulty="easy",
        prompt=prompt,
        answer=" ".join(sentence(part[:1].upper() + part[1:]) for part in text.split(". ")),
        expected=(letter, right),
        key=f"{entity.name}/{key}/{'/'.join(sorted(options))}",
        subject=entity.name,
    )
