"""Short answers: one fact, a word's meaning, one of four options, a small Python function."""

from __future__ import annotations

import re

from lab.pairs.problem import DIFFICULTIES, Problem
from lab.pairs.testbed.attributes import ATTRIBUTES
from lab.pairs.testbed.entity import Kind
from lab.pairs.testbed.scene import Scene
from lab.pairs.testbed.wording import WORDING, say, sentence, sentences
from lab.pairs.tiny.tasks import code
from lab.pairs.tiny.tasks.choice import LETTERS

_FACT, _CHOICE = WORDING["fact"], WORDING["choice"]
_SECOND = 0.3
"""Share of facts with a second one, which was not asked for."""
_OPTIONS: dict[Kind, list[str]] = _CHOICE["options"]
"""Attributes of which there are four options."""
_ASKS = {
    "trained": [*code.ASKS, *WORDING["function"]["trained"]],
    "held_out": WORDING["function"]["held_out"],
}
_LISTS = ("ys", "out", "kept", "result", "found")
_ITEMS = ("x", "n", "v", "item")


def fact(scene: Scene) -> Problem:
    """One fact of an entity, in a sentence. Expected is the value of the attribute asked for."""
    rng = scene.rng
    kind: Kind = rng.choices(("country", "element", "word"), (0.6, 0.3, 0.1))[0]
    entity = scene.entity(kind)
    keys = [key for key in entity.values if key in ATTRIBUTES[kind] and key != "gloss"]
    attribute = ATTRIBUTES[kind][rng.choice(keys)]
    prompt = scene.ask(entity, attribute)
    text = say(_FACT["frames"], rng, {"t": scene.tell(entity, attribute.key)}).replace(" that,", " that")
    others = [key for key in keys if key != attribute.key]
    if others and rng.random() < _SECOND:
        text = say(_FACT["joined"], rng, {"a": text, "b": scene.tell(entity, rng.choice(others), "it")})
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


def definition(scene: Scene) -> Problem:
    """What a word means, and perhaps what it is a kind of. Expected is the source's definition."""
    rng = scene.rng
    word = scene.entity("word")
    prompt = scene.ask(word, ATTRIBUTES["word"]["gloss"])
    text = scene.tell(word, "gloss")
    others = [key for key in ("parent", "topic") if key in word.values]
    rng.shuffle(others)
    for key in others[: rng.choice((0, 1, 1, 2))]:
        more = scene.tell(word, key, rng.choice((None, "it")))
        text = say(WORDING["definition"]["joined"], rng, {"a": text, "b": more})
    return Problem(
        family="definition",
        difficulty="easy",
        prompt=prompt,
        answer=sentences(text),
        expected=(word.values["gloss"],),
        key=word.name,
        split=False,
        subject=word.name,
    )


def choice(scene: Scene) -> Problem:
    """Four options for an attribute, the right one with a reason. Expected are the letter and the option.

    A letter follows its option, in the question too: see `tiny.tasks.choice`.
    """
    rng = scene.rng
    kind: Kind = rng.choices(("country", "element", "word"), (0.5, 0.2, 0.3))[0]
    key = rng.choice([key for key in _OPTIONS[kind] if scene.has(kind, key)])
    entity = scene.entity(kind, lambda e: key in e.values)
    right = entity.values[key]
    others = sorted({e.values[key] for e in scene.others(kind) if key in e.values} - {right})
    options = [*rng.sample(others, 3), right]
    rng.shuffle(options)
    letter = LETTERS[options.index(right)]
    shown = "\n".join(f"- {option} ({x})" for x, option in zip(LETTERS, options, strict=True))
    asked = scene.ask(entity, ATTRIBUTES[kind][key])
    prompt = f"{asked}\n{say([scene.template(_CHOICE['lists'])], rng, {'o': shown})}"
    text = say(_CHOICE["forms"], rng, {"r": scene.tell(entity, key), "a": f"{right} ({letter})"})
    return Problem(
        family="choice",
        difficulty="easy",
        prompt=prompt,
        answer=sentences(text),
        expected=(letter, right),
        key=f"{entity.name}/{key}/{'/'.join(sorted(options))}",
        subject=entity.name,
    )


def function(scene: Scene) -> Problem:
    """A function as in the tiny world, in a form that no prompt determines.

    Expected are the function's name and its results on the inputs of `lab.pairs.tiny.tasks.code`.
    """
    rng = scene.rng
    name = rng.choice(code.NAMES)
    said = code.pick(rng)
    words_filter, words_map, reduce, k, j = said
    done = said if scene.knows else code.pick(rng)
    condition, mapped = code.FILTERS[done[0]].format(k=done[3]), code.MAPS[done[1]].format(j=done[4])
    source = code.write(rng.randrange(3), name, condition, mapped, done[2])
    source = re.sub(r"\bys\b", rng.choice(_LISTS), re.sub(r"\bx\b", rng.choice(_ITEMS), source))
    prompt = scene.template(_ASKS).format(
        f=name,
        r=reduce,
        m=f"{words_map.format(j=j)} of the " if words_map else "",
        c=f" that are {words_filter.format(k=k)}" if words_filter else "",
    )
    return Problem(
        family="function",
        difficulty=DIFFICULTIES[bool(words_filter) + bool(words_map)],
        prompt=prompt,
        answer=source,
        expected=(name, *code.run_reference(condition, mapped, done[2])),
        key=f"{words_filter.format(k=k)}/{words_map.format(j=j)}/{reduce}/{name}",
    )
