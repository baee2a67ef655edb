"""The synthetic world: towns, and one value for each of their attributes.

The diffusion model was trained on it, the edge model on worlds redrawn for every sample: the same language
without the knowledge. Not responsible for questions and answers (see `tasks`).
"""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

WORDING: dict[str, Any] = tomllib.loads((Path(__file__).parent / "wording.toml").read_text(encoding="utf-8"))
"""What questions and answers say, as templates for `str.format`; three phrasings in one list each."""

WORDS: dict[str, list[str]] = {name: text.split() for name, text in WORDING["words"].items()}

ATTRIBUTES = ("river", "mayor", "craft", "dish", "bird", "festival", "year", "population", "region")
"""Attributes of a town. `year` and `population` (in thousands) are numbers; the rest are words."""


def _names(kind: str, count: int, salt: int) -> tuple[str, ...]:
    """`count` distinct names, the same on every run."""
    every = [stem + end for stem in WORDS["stems"] for end in WORDS[f"{kind}_ends"]]
    return tuple(random.Random(salt).sample(every, count))


TOWNS = _names("town", 64, 11)
RIVERS = _names("river", 24, 12)
SURNAMES = _names("surname", 64, 13)


def _draw(attribute: str, rng: random.Random) -> str:
    """A random value of an attribute."""
    match attribute:
        case "year":
            return str(rng.randint(1100, 1899))
        case "population":
            return str(rng.randint(11, 99))
        case _:
            return rng.choice(POOLS[attribute])


POOLS: dict[str, tuple[str, ...]] = {
    "river": RIVERS,
    "mayor": SURNAMES,
    **{name: tuple(WORDS[name]) for name in ("craft", "dish", "bird", "festival", "region")},
}


def _facts(rng: random.Random) -> dict[str, dict[str, str]]:
    """Attributes of each town. Mayor and year of foundation are unique to a town."""
    mayors = rng.sample(SURNAMES, len(TOWNS))
    years = rng.sample(range(1100, 1900), len(TOWNS))
    return {
        town: {a: _draw(a, rng) for a in ATTRIBUTES} | {"mayor": mayor, "year": str(year)}
        for town, mayor, year in zip(TOWNS, mayors, years, strict=True)
    }


FACTS = _facts(random.Random(7))
"""Values by town and attribute."""
