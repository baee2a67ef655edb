"""Which of two has more of something, and why: two facts and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from lab.pairs.problem import Problem
from lab.pairs.testbed.entity import Kind
from lab.pairs.testbed.scene import Scene, sentence_of
from lab.pairs.testbed.wording import WORDING, say, sentence


@dataclass(frozen=True)
class Scale:
    """A quantity by which two entities compare; the attribute of the same key tells it.

    more, less: words of the question. above, below: verdicts, in which {x} has more than {y}; the first, with
                both names, is understood but not said: models of this size take one name for both.
    """

    kind: Kind
    key: str
    more: str
    less: str
    above: tuple[str, ...]
    below: tuple[str, ...]


def _scale(kind: Kind, key: str, more: str, less: str, verb: str = "is") -> Scale:
    """A scale whose verdicts all have the form "x is more than y"."""

    def verdicts(first: str, second: str, word: str) -> tuple[str, ...]:
        return (
            f"{{{first}}} {verb} {word} than {{{second}}}",
            f"[of the two|of these two|between them], {{{first}}} {verb} {word}",
            f"{{{first}}} {verb} {word}",
            f"it is {{{first}}} that {verb} {word}",
        )

    return Scale(
        kind, key, f"{verb} {more}", f"{verb} {less}", verdicts("x", "y", more), verdicts("y", "x", less)
    )


SCALES = (
    _scale("country", "people", "more people", "fewer people", "has"),
    _scale("country", "area", "larger", "smaller"),
    _scale("country", "age", "an older population", "a younger population", "has"),
    _scale("country", "life", "a longer life expectancy", "a shorter life expectancy", "has"),
    _scale("country", "urban", "more urban", "less urban"),
    _scale("element", "number", "more protons", "fewer protons", "has"),
    _scale("element", "weight", "heavier", "lighter"),
    _scale("element", "melting", "harder to melt", "easier to melt"),
    _scale("element", "year", "newer to science", "older to science"),
)
_SAY = WORDING["comparison"]
VERDICTS = tuple(v for scale in SCALES for v in (*scale.above, *scale.below))


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
    asked = {"w": scale.more if ask_more else scale.less, "n": one.name, "m": two.name, "k": scale.kind}
    prompt = sentence_of(say([scene.template(_SAY["ask"])], rng, asked).strip())
    verdict = say((scale.above if ask_more else scale.below)[1:], rng, {"x": more.name, "y": less.name})
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
