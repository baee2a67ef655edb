"""Which of two has more of something, and why: two facts and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from lab.pairs.problem import Problem
from lab.pairs.testbed.entity import Kind
from lab.pairs.testbed.scene import Scene, sentence_of
from lab.pairs.testbed.wording import WORDING, say, sentence


@dataclass(frozen=True)
class Scale:
    """A quantity by which two entities compare; the attribute of the same key tells it."""

    kind: Kind
    key: str
    more: str
    less: str
    verb: str = "is"

    def verdicts(self, *, above: bool) -> tuple[str, ...]:
        """Verdicts in which {x} has more than {y}, told of the one that has more (above) or less.

        The first, with both names, is understood but not said: models of this size take one name for both.
        """
        first, second, word = ("{x}", "{y}", self.more) if above else ("{y}", "{x}", self.less)
        return (
            f"{first} {self.verb} {word} than {second}",
            f"[of the two|of these two|between them], {first} {self.verb} {word}",
            f"{first} {self.verb} {word}",
            f"it is {first} that {self.verb} {word}",
        )


SCALES = tuple(Scale(**fields) for fields in WORDING["scales"])
_SAY = WORDING["comparison"]
VERDICTS = tuple(v for scale in SCALES for above in (True, False) for v in scale.verdicts(above=above))


def draw(scene: Scene) -> Problem:
    """Expected are the one that has more, the other one, and both values."""
    rng = scene.rng
    scale = rng.choice([s for s in SCALES if scene.has(s.kind, s.key)])
    one = scene.entity(scale.kind, lambda e: scale.key in e.values)
    two = scene.entity(
        scale.kind, lambda e: e.values.get(scale.key, one.values[scale.key]) != one.values[scale.key]
    )
    more, less = (one, two) if one.numbers[scale.key] > two.numbers[scale.key] else (two, one)
    ask_more = rng.random() < 0.5
    word = f"{scale.verb} {scale.more if ask_more else scale.less}"
    asked = {"w": word, "n": one.name, "m": two.name, "k": scale.kind}
    prompt = sentence_of(say([scene.template(_SAY["ask"])], rng, asked).strip())
    verdict = say(scale.verdicts(above=ask_more)[1:], rng, {"x": more.name, "y": less.name})
    told = [scene.tell(one, scale.key), scene.tell(two, scale.key)]  # as they were asked about
    text = say(_SAY["forms"], rng, {"a": told[0], "b": told[1], "B": sentence_of(told[1]), "r": verdict})
    names = "/".join(sorted((one.name, two.name)))
    return Problem(
        family="comparison",
        difficulty="medium",
        prompt=prompt,
        answer=sentence(text),
        expected=(more.name, less.name, more.values[scale.key], less.values[scale.key]),
        key=f"{scale.key}/{names}",
        subject=one.name,
    )
