"""What a word means, with what it is a kind of where that is told as well."""

from __future__ import annotations

from lab.pairs.problem import Problem
from lab.pairs.testbed.attributes import ATTRIBUTES
from lab.pairs.testbed.scene import Scene
from lab.pairs.testbed.wording import say, sentence

_JOINED = (
    "{a}. {b}",
    "{a}; {b}",
    "{a}, [and|so] {b}",
    "{b}: {a}",
    "{b}. [In other words|That is|More exactly], {a}",
    "[first|to begin with], {b}. [Then|And], {a}",
)


def draw(scene: Scene) -> Problem:
    """Expected is the definition as the source has it."""
    rng = scene.rng
    word = scene.entity("word")
    prompt = scene.ask(word, ATTRIBUTES["word"]["gloss"])
    text = scene.tell(word, "gloss")
    others = [key for key in ("parent", "topic") if key in word.values]
    rng.shuffle(others)
    for key in others[: rng.choice((0, 1, 1, 2))]:
        text = say(_JOINED, rng, {"a": text, "b": scene.tell(word, key, rng.choice((None, "it")))})
    return Problem(
        family="definition",
        difficulty="easy",
        prompt=prompt,
        answer=". ".join(sentence(part).rstrip(".") for part in text.split(". ")) + ".",
        expected=(word.values["gloss"],),
        key=word.name,
        split=False,
    )
