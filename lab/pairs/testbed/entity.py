"""What is known about one country, element or word.

Responsible for the record, for the role that decides which model knows it, and for cleaning text. Not
responsible for where the facts come from (see `countries`, `elements`, `glosses`).
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["country", "element", "word"]
Role = Literal["cloud", "edge", "neither"]


@dataclass(frozen=True)
class Entity:
    """One subject of questions.

    values:  attribute to its value in words, at most a few.
    numbers: quantity to its value in the units of `quantities`.
    prose:   sentences of the source that name the subject.
    """

    kind: Kind
    name: str
    values: Mapping[str, str]
    numbers: Mapping[str, float]
    prose: tuple[str, ...] = ()

    @property
    def role(self) -> Role:
        """Who is trained on its true facts: the cloud (three in four), the edge, or neither (one in ten)."""
        digest = hashlib.sha256(f"{self.kind}/{self.name}".encode()).digest()
        place = int.from_bytes(digest[:4], "big") % 20
        return "neither" if place < 2 else "edge" if place < 5 else "cloud"

    def with_facts_of(self, donor: Entity) -> Entity:
        """This name with everything else taken from another entity."""
        prose = tuple(re.sub(rf"\b{re.escape(donor.name)}\b", self.name, text) for text in donor.prose)
        return replace(donor, name=self.name, prose=prose)


def plain(text: str) -> str:
    """Text without HTML: no tags, no entities, straight quotes, single spaces."""
    text = html.unescape(html.unescape(re.sub(r"<br\s*/?>|</p>|</li>", " ", text)))
    text = re.sub(r"<[^>]*>", "", text)
    text = text.translate(str.maketrans("’‘“”–—", "''\"\"--", "\ufeff"))
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """Sentences of plain prose; abbreviations of one letter or of titles do not end one."""
    return [s.strip() for s in re.split(r"(?<=[a-z0-9)]{2}\.)\s+(?=[A-Z])", text) if s.strip()]
