"""Common nouns and their definitions, from the database files of WordNet 3.0.

Responsible for the files' format (wndb, cntlist) and for the choice of words. Not responsible for questions.
"""

from __future__ import annotations

import re
from pathlib import Path

from lab.pairs.testbed.entity import Entity, plain

WORDS = 900
"""So many of the most frequent nouns whose first sense has a short definition are used."""

_TOPICS = dict(
    zip(
        (*range(4, 16), *range(17, 23), *range(25, 29)),
        "act animal artifact attribute body cognition communication event feeling food group location "
        "object person phenomenon plant possession process shape state substance time".split(),
        strict=True,
    )
)
"""Topics by WordNet's numbers; nouns of other numbers are not used."""


def _counts(file: Path) -> dict[str, int]:
    """Nouns and how often their first sense is tagged in WordNet's texts, the most frequent first."""
    counts = {}
    for line in file.read_text(encoding="latin-1").splitlines():
        key, sense, count = line.split()
        word, _, place = key.partition("%")
        if place.startswith("1:") and sense == "1" and re.fullmatch(r"[a-z]{3,}", word):
            counts[word] = int(count)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _first_senses(file: Path) -> dict[str, str]:
    """Offset of the first sense of each noun."""
    senses = {}
    for line in file.read_text(encoding="latin-1").splitlines():
        if not line.startswith(" "):
            parts = line.split()
            senses[parts[0]] = parts[-int(parts[2])]
    return senses


def read(folder: Path) -> list[Entity]:
    """Common nouns, the most frequent first."""
    synsets = {line[:8]: line for line in (folder / "data.noun").read_text(encoding="latin-1").splitlines()}
    offsets = _first_senses(folder / "index.noun")
    found: list[Entity] = []
    taken: set[str] = set()
    for word in _counts(folder / "cntlist.rev"):
        entity = _word(word, synsets, offsets)
        if entity and entity.values["gloss"] not in taken:
            taken.add(entity.values["gloss"])
            found.append(entity)
        if len(found) == WORDS:
            break
    return found


def _word(word: str, synsets: dict[str, str], offsets: dict[str, str]) -> Entity | None:
    """The noun with its definition, what it is a kind of, and its topic; None where these are not clear."""
    fields, _, gloss = synsets.get(offsets.get(word, ""), "").partition(" | ")
    if not gloss:  # a sense of another lemma
        return None
    gloss = re.sub(r"^\([^)]*\)\s*", "", plain(re.split(r'[;"]', gloss)[0])).strip(" ,:")
    parts = fields.split()
    parents = [parts[i + 1] for i, part in enumerate(parts[:-1]) if part == "@"]
    topic = _TOPICS.get(int(parts[1]))
    if not parents or not topic or not 4 <= len(gloss.split()) <= 13 or re.search(r"[():\d`]", gloss):
        return None
    if re.search(rf"\b{word}", gloss):
        return None
    parent = synsets[parents[0]].split()[4].replace("_", " ")
    return Entity("word", word, {"gloss": gloss, "parent": parent, "topic": topic}, {})
