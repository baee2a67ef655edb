"""Chemical elements, as the package `mendeleev` has them in its SQLite file.

Responsible for reading rows and for turning them into short values and numbers. Not responsible for
questions. The package is not imported, so that its own dependencies are not needed.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

from lab.pairs.testbed.entity import Entity, plain, sentences

_QUERY = (
    "select elements.*, series.name as series, phase.melting_point as melting from elements "
    "left join series on series.id = elements.series_id "
    "left join (select atomic_number, min(melting_point) as melting_point from phasetransitions "
    "group by atomic_number) as phase on phase.atomic_number = elements.atomic_number "
    "order by elements.atomic_number"
)


def element(row: dict[str, Any]) -> Entity:
    """One element of a joined row."""
    name = str(row["name"]).lower()
    number, weight = int(row["atomic_number"]), round(float(row["atomic_weight"]))
    numbers: dict[str, float] = {
        "number": number,
        "weight": weight,
        "neutrons": weight - number,
        "period": int(row["period"]),
    }
    values = {
        "symbol": str(row["symbol"]),
        "number": str(number),
        "weight": str(weight),
        "period": str(row["period"]),
        "series": re.sub("(?<=gas)es$|(?<!gas)s$", "", str(row["series"]).lower()),
    }
    if row["group_id"]:
        numbers["group"] = int(row["group_id"])
        values["group"] = str(row["group_id"])
    if row["melting"]:
        numbers["melting"] = round(float(row["melting"]))
        values["melting"] = f"{numbers['melting']:g}"
    if row["discovery_year"]:
        numbers["year"] = int(row["discovery_year"])
        values["year"] = str(row["discovery_year"])
    for key, column in (("discoverer", "discoverers"), ("place", "discovery_location")):
        text = plain(row[column] or "").strip(" .")
        if text and len(text.split()) <= 6 and not re.search(r"[();]|nown|/", text):
            values[key] = text
    origin = re.fullmatch(
        r"([A-Z][a-z]+): ([a-z]+)(?: or [a-z]+)?,? \(([^()]+)\)", plain(row["name_origin"] or "").strip(" .")
    )
    if origin and len(origin[3].split()) <= 4:
        values["origin"] = f"the {origin[1]} word {origin[2]}, {origin[3].strip(' ,')}"
    prose = [
        s
        for s in sentences(plain(row["uses"] or ""))
        if s.startswith("Used ") and 4 <= len(s.split()) <= 16 and not re.search(r"[()]", s)
    ]
    if prose:
        values["use"] = prose[0][len("Used ") :].strip(" .")
    look = re.match(
        r"([A-Z][a-z]+(?:[ ,-]+[a-z]+){0,3} (?:metal|gas|solid|liquid|element))\b",
        plain(row["description"] or ""),
    )
    if look:
        values["look"] = look[1].lower()
    return Entity("element", name, values, numbers)


def read(folder: Path) -> list[Entity]:
    """All elements, by atomic number."""
    connection = sqlite3.connect(f"file:{folder / 'elements.db'}?mode=ro", uri=True)
    try:
        connection.row_factory = sqlite3.Row
        return [element(dict(row)) for row in connection.execute(_QUERY)]
    finally:
        connection.close()
