"""Libraries for the testbed's tests: a made one, which is always there, and the installed sources."""

from __future__ import annotations

import random

import pytest

from lab.pairs.testbed import library as sources
from lab.pairs.testbed.attributes import ATTRIBUTES
from lab.pairs.testbed.countries import spoken
from lab.pairs.testbed.entity import Entity, Kind
from lab.pairs.testbed.library import Library, SourceMissingError

SYLLABLES = "ba de ki lo mu na po ra su ti vo ze".split()


def invented(rng: random.Random) -> str:
    return "".join(rng.choice(SYLLABLES) for _ in range(6))


def made_entity(kind: Kind, rng: random.Random) -> Entity:
    """An entity with every attribute; its quantities are those of the real ones."""
    numbers: dict[str, float] = {}
    if kind == "country":
        numbers = {k: rng.randint(20, 90) for k in ("age", "life", "urban")}
        numbers |= {
            "people": rng.randint(2, 90) * 1e6,
            "area": rng.choice((5e5, 1e6)),
            "neighbours": rng.randint(1, 9),
        }
        numbers["density"] = numbers["people"] / numbers["area"]
    if kind == "element":
        number = rng.randint(1, 49)
        numbers = {"number": number, "neutrons": number + 1, "weight": 2 * number + 1}
        numbers |= {
            "period": rng.randint(1, 7),
            "melting": rng.randint(20, 3000),
            "year": rng.randint(1600, 2000),
        }
    values = {
        key: spoken(numbers[key]) if key in ("people", "area") else f"{numbers[key]:g}" for key in numbers
    }
    values = {k: v for k, v in values.items() if k in ATTRIBUTES[kind]}
    values |= {key: invented(rng) for key in ATTRIBUTES[kind] if key not in values}
    if kind == "word":
        values["gloss"] = " ".join(invented(rng) for _ in range(6))
    name = invented(rng).capitalize()
    return Entity(kind, name, values, numbers, (f"Once {name} was larger than it is now.",))


@pytest.fixture(scope="session", params=["made", "installed"])
def library(request: pytest.FixtureRequest) -> Library:
    if request.param == "made":
        rng = random.Random(5)
        kinds: tuple[Kind, ...] = ("country", "element", "word")
        return Library(tuple(made_entity(kind, rng) for kind in kinds for _ in range(120)))
    try:
        return sources.read()
    except SourceMissingError as missing:
        pytest.skip(str(missing))
