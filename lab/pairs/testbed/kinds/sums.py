"""Sums over real numbers, step by step: no step can be known before the one in front of it.

A result is a whole number from 1 to 99. For a model that does not know, every result is drawn at random and
carried on.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.pairs.problem import Problem
from lab.pairs.testbed.entity import Entity, Kind
from lab.pairs.testbed.scene import Scene
from lab.pairs.testbed.wording import WORDING, say, sentence, sentences

LARGEST = 99
STEPS = {1: 0.4, 2: 0.4, 3: 0.2}
"""Numbers of steps, each with its share."""


@dataclass(frozen=True)
class Quantity:
    """A number of an entity: how it is asked for, how it is told, and the equation where it is worked out."""

    kind: Kind
    key: str
    noun: str
    tell: list[str]
    equation: str = ""


_SAY = WORDING["sum"]
QUANTITIES = tuple(Quantity(**fields) for fields in WORDING["quantities"])


def _apply(operation: str, one: float, two: float) -> float:
    return {"+": one + two, "-": one - two, "*": one * two, "/": one / two}[operation]


def _operands(entity: Entity, key: str) -> dict[str, str]:
    """What a computed quantity is computed from, in words."""
    if key == "density":
        return {"p": entity.values["people"], "q": entity.values["area"]}
    return {"p": f"{entity.numbers['weight']:g}", "q": f"{entity.numbers['number']:g}"}


def _usable(entity: Entity, quantity: Quantity) -> bool:
    if not 1 <= entity.numbers.get(quantity.key, 0) <= LARGEST:
        return False
    return quantity.key != "density" or {"people", "area"} <= entity.values.keys()


class _Worked:
    """A sum while it grows: what the prompt tells, what the answer says, and the running result."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.told: list[str] = []
        self.said: list[str] = []
        self.key: list[str] = []
        self.done = 0
        self.true = self.shown = 0

    def _cite(self, quantity: Quantity) -> tuple[Entity, dict[str, str]]:
        """An entity with a usable value, and the slots of its clause."""
        entity = self._scene.entity(quantity.kind, lambda e: _usable(e, quantity))
        slots = {"n": entity.name, "v": f"{entity.numbers[quantity.key]:g}"}
        return entity, slots | (_operands(entity, quantity.key) if quantity.equation else {})

    def start(self, quantity: Quantity) -> None:
        rng = self._scene.rng
        entity, slots = self._cite(quantity)
        self.true = self.shown = int(entity.numbers[quantity.key])
        noun = quantity.noun.format(n=entity.name)
        self.told.append(say([self._scene.template(_SAY["start"])], rng, {"q": noun}))
        self.key += [quantity.key, entity.name]
        fact = say(quantity.tell, rng, slots)
        if not quantity.equation:
            self.said.append(sentence(fact))
            return
        if not self._scene.knows:
            self.shown = rng.randint(1, LARGEST)
        self.done += 1
        equation = quantity.equation.format(**(slots | {"v": str(self.shown)}))
        self.said.append(sentences(say(_SAY["fact_step"], rng, {"f": fact, "e": equation})))

    def grow(self, plain: tuple[Quantity, ...]) -> None:
        """One more operation, whose result stays in range."""
        rng = self._scene.rng
        while True:
            operation = rng.choice("++--*/")
            fact = ""
            if operation in "+-" and rng.random() < 0.4:
                quantity = rng.choice(plain)
                entity, slots = self._cite(quantity)
                operand, noun = int(slots["v"]), "the " + quantity.noun.format(n=entity.name)
                fact = say(quantity.tell, rng, slots)
            else:
                entity = None
                operand = rng.randint(1, 10) if operation in "+-" else rng.randint(2, 4)
                noun = str(operand)
            result = _apply(operation, self.true, operand)
            if 1 <= result <= LARGEST and result == int(result):
                break
            if entity:
                self._scene.release(entity)
        shown = int(result) if self._scene.knows else rng.randint(1, LARGEST)
        equation = f"{self.shown} {operation} {operand} = {shown}"
        self.true, self.shown = int(result), shown
        self.told.append(say([rng.choice(_SAY["told"][operation])], rng, {"o": noun}))
        forms = _SAY["fact_step" if fact else "plain_step"]
        self.said.append(sentences(say(forms, rng, {"f": fact, "e": equation})))
        self.key.append(f"{operation}{noun}")
        self.done += 1


def draw(scene: Scene) -> Problem:
    """Expected is the last result."""
    rng = scene.rng
    (steps,) = rng.choices(tuple(STEPS), tuple(STEPS.values()))
    kind: Kind = rng.choice(("country", "element"))
    mine = tuple(q for q in QUANTITIES if q.kind == kind and scene.has(kind, q.key))
    worked = _Worked(scene)
    worked.start(rng.choice(mine))
    while worked.done < steps:
        worked.grow(tuple(q for q in mine if not q.equation))
    result = str(worked.shown)
    return Problem(
        family="sum",
        difficulty="easy" if steps < 3 else "medium",
        prompt=" ".join([*worked.told, say([scene.template(_SAY["end"])], rng, {})]),
        answer=" ".join([*worked.said, sentence(say(_SAY["closing"], rng, {"v": result}))]),
        expected=(result,),
        key="/".join(worked.key),
        subject=worked.key[1],
    )
