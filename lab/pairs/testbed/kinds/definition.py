"""What a word means, with what it is a kind of where that is told as well."""

from __future__ import annotations

from lab.pairs.problem import Problem
from lab.pairs.testbed.attributes import ATTRIBUTES
from lab.pairs.testbed.scene import Scene
from lab.pairs.testbed.wording import WORDING, say, sentence


def draw(scene: Scene) -> Problem:
    """Expected is the definition as the source has it."""
    rng = scene.rng
    word = scene.entity("word")
    prompt = scene.ask(word, ATTRIBUTES["word"]["gloss"])
    text = scene.tell(word, "gloss")
    others = [key for key in ("parent", "topic") if key in word.values]
    rng.shuffle(others)
    for key in others[: rng.choice((0, 1, 1, 2))]:
        text = say(
            WORDING["definition"]["joined"],
            rng,
            {"a": text, "b": scene.tell(word, key, rng.choice((None, "it")))},
        )
    return Problem(
        family="definition",
        difficulty="easy",
        prompt=prompt,
        answer=". ".join(sentence(part).rstrip(".") for part in text.split(". ")) + ".",
        expected=(word.values["gloss"],),
        key=word.name,
        split=False,
        subject=word.name,
    )
