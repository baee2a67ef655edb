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

_STEMS = (
    "Ar Bel Cor Dun El Fen Gal Har Iver Jas Kel Lor Mar Nor Os Pel Quin Ral Sel Tor Ul Ver Wes Yar Zel "
    "Bran Cal Dor Es Fal Gran Hol"
).split()
_TOWN_ENDS = "den moor wick ford by stead haven gate".split()
_RIVER_ENDS = "ine ash une el".split()
_SURNAME_ENDS = "ley son ers man ott ung".split()

PEOPLE = (
    "Ada Ben Cleo Dan Ema Finn Gia Hugo Ida Jon Kim Leo Mia Ned Ola Pia Rex Sam Tia Uma Vic Wes Yan Zoe "
    "Abe Bea Cal Dot Eli Fay Gus Hal"
).split()
MONTHS = "January February March April May June July August September October November December".split()
CRAFTS = (
    "pottery weaving carving printing baking brewing dyeing tanning forging spinning quilting sailing "
    "fishing mining painting gilding roofing tailoring thatching joinery masonry farming welding engraving"
).split()
DISHES = (
    "soup bread cheese stew pie cake rice noodles beans salad porridge sausage pancakes dumplings "
    "pickles chowder omelettes waffles curry trout honey jam tarts toffee"
).split()
BIRDS = (
    "heron owl robin swan crane eagle raven finch stork gull falcon wren lark magpie kestrel plover".split()
)
REGIONS = "north south east west coast hills plains marshes".split()

ATTRIBUTES = ("river", "mayor", "craft", "dish", "bird", "festival", "year", "population", "region")
"""Attributes of a town. `year` and `population` (in thousands) are numbers; the rest are words."""


def _names(ends: list[str], count: int, salt: int) -> tuple[str, ...]:
    """`count` distinct names, the same on every run."""
    every = [stem + end for stem in _STEMS for end in ends]
    return tuple(random.Random(salt).sample(every, count))


TOWNS = _names(_TOWN_ENDS, 64, 11)
RIVERS = _names(_RIVER_ENDS, 24, 12)
SURNAMES = _names(_SURNAME_ENDS, 64, 13)


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
    "craft": tuple(CRAFTS),
    "dish": tuple(DISHES),
    "bird": tuple(BIRDS),
    "festival": tuple(MONTHS),
    "region": tuple(REGIONS),
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
