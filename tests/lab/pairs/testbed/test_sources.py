"""Reading of the sources: their formats on small samples, and what the installed ones hold."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from cloud_anchor.shipped import PAIRS, SUBJECTS
from lab.pairs.testbed import countries, elements, glosses
from lab.pairs.testbed import library as sources
from lab.pairs.testbed.entity import Entity, plain, sentences
from lab.pairs.testbed.library import Library, SourceMissingError

CHAD = {
    "Introduction": {
        "Background": {
            "text": "<p>Chad emerged from powerful states of the Sahel.</p> <p>It is dry. "
            "Later Chad&rsquo;s leaders expelled the forces of its neighbour. "
            "Idriss DEBY ruled Chad for thirty years after that.</p>"
        }
    },
    "Geography": {
        "Area": {"total ": {"text": "1.284 million sq km"}},
        "Climate": {"text": "tropical in south, desert in north"},
        "Land boundaries": {"border countries": {"text": "Libya 1,050 km; Sudan (north) 1,403 km"}},
        "Elevation": {"highest point": {"text": "Emi Koussi 3,445 m"}},
    },
    "People and Society": {
        "Population": {"total": {"text": "19,093,595 (2024 est.)"}},
        "Median age": {"total": {"text": "16.7 years (2025 est.)"}},
    },
    "Government": {
        "Country name": {"conventional short form": {"text": "Chad"}},
        "Capital": {"name": {"text": "N&rsquo;Djamena"}},
        "Independence": {"text": "11 August 1960 (from France)"},
    },
    "Economy": {"Exports - commodities": {"text": "<em>crude petroleum</em>, gold (2023)"}},
}


def test_the_shipped_subjects_are_the_world_s() -> None:
    try:
        wanted = sources.subjects(sources.read())
    except SourceMissingError as error:
        pytest.skip(str(error))
    assert json.loads((PAIRS["testbed"].weights / SUBJECTS).read_text("utf-8")) == wanted


def test_a_country_is_read_from_its_record() -> None:
    chad = countries.country(CHAD, "africa")
    assert chad is not None
    expected = {
        "capital": "N'Djamena",
        "region": "Africa",
        "people": "19 million",
        "area": "1.3 million",
        "age": "17",
        "independence": "1960",
        "export": "crude petroleum",
        "borders": "Libya and Sudan",
        "peak": "Emi Koussi",
    }
    assert {key: chad.values[key] for key in expected} == expected
    assert chad.numbers["density"] == 15  # 19 million / 1.3 million
    assert chad.numbers["neighbours"] == 2
    assert chad.prose == (
        "Chad emerged from powerful states of the Sahel.",
        "Later Chad's leaders expelled the forces of its neighbour.",
    )


def test_a_country_without_people_is_none() -> None:
    assert countries.country(CHAD | {"People and Society": {}}, "africa") is None


@pytest.mark.parametrize(
    ("value", "said"),
    [(68_512_806, "69 million"), (1.41e9, "1.4 billion"), (719, "720"), (43_268, "43 thousand")],
)
def test_counts_are_said_in_two_digits(value: float, said: str) -> None:
    assert countries.spoken(value) == said
    assert countries.number(said) == countries.rounded(value)


def test_text_has_no_markup() -> None:
    assert plain("<p>R&eacute;publique&nbsp;du<br>Tchad&amp;rsquo;s</p>") == "République du Tchad's"
    assert sentences("He met St. Paul. Then he left.") == ["He met St. Paul.", "Then he left."]


def test_words_are_read_from_wordnets_files(tmp_path: Path) -> None:
    header = "  1 This line belongs to the licence.\n"
    (tmp_path / "data.noun").write_text(
        header + "00000100 05 n 02 dog 0 domestic_dog 0 001 @ 00000200 n 0000 | a member of the genus Canis; "
        '"the dog barked"\n00000200 05 n 01 canine 0 000 | any of various mammals with claws\n'
    )
    (tmp_path / "index.noun").write_text(
        header + "dog n 2 1 @ 2 1 00000100 00000200\ncanine n 1 0 1 1 00000200\n"
    )
    (tmp_path / "cntlist.rev").write_text("canine%1:05:00:: 1 3\ndog%1:05:00:: 1 42\nrun%2:38:00:: 1 99\n")
    words = glosses.read(tmp_path)
    assert [word.name for word in words] == ["dog"]  # nothing is above the canine
    assert words[0].values == {"gloss": "a member of the genus Canis", "parent": "canine", "topic": "animal"}


def test_an_element_is_read_from_its_row() -> None:
    row = {
        "name": "Cobalt",
        "atomic_number": 27,
        "atomic_weight": 58.933,
        "period": 4,
        "symbol": "Co",
        "series": "Transition metals",
        "group_id": 9,
        "melting": 1768.0,
        "discovery_year": 1739,
        "discoverers": "George Brandt",
        "discovery_location": "Sweden",
        "name_origin": "German: kobold (goblin).",
        "uses": "Used in many hard alloys. Also elsewhere.",
        "description": "Light grey transition element. Rare.",
    }
    cobalt = elements.element(row)
    assert cobalt.numbers == {
        "number": 27, "weight": 59, "neutrons": 32, "period": 4, "group": 9, "melting": 1768, "year": 1739,
    }  # fmt: skip
    assert cobalt.values["origin"] == "the German word kobold, goblin"
    assert cobalt.values["use"] == "in many hard alloys"
    assert cobalt.values["look"] == "light grey transition element"


def test_the_query_asks_for_columns_that_the_installed_file_has() -> None:
    try:
        folder = sources.package_folder("mendeleev")
    except SourceMissingError as missing:
        pytest.skip(str(missing))
    with sqlite3.connect(f"file:{folder / 'elements.db'}?mode=ro", uri=True) as connection:
        assert connection.execute(elements._QUERY).fetchone() is not None
    assert [e.values["symbol"] for e in elements.read(folder)[:4]] == ["H", "He", "Li", "Be"]


def test_the_sources_hold_known_facts(library: Library) -> None:
    known = {(e.kind, e.name): e for e in library.entities}
    if ("country", "France") not in known:
        pytest.skip("a made library")
    assert len(known) > 470
    assert known["country", "France"].values["capital"] == "Paris"
    assert known["element", "helium"].values["series"] == "noble gas"
    assert known["country", "Bolivia"].values["currency"] == "boliviano"
    assert known["element", "iron"].values["number"] == "26"
    for entity in library.entities:
        for text in (entity.name, *entity.values.values(), *entity.prose):
            assert text.strip() == text != ""
            assert not set(text) & set("<>[]{}|")
            assert "none" not in text.split()


def test_the_world_is_a_part_of_the_library_and_has_all_that_nobody_knows(library: Library) -> None:
    asked, known = sources.world(library), {(e.kind, e.name): e for e in library.entities}
    for entity in asked.entities:
        assert set(entity.values) <= sources.ASKED[entity.kind]
        assert entity.values.items() <= known[entity.kind, entity.name].values.items()
    counts = {kind: len(asked.of(kind, "cloud")) + len(asked.of(kind, "edge")) for kind in sources.ASKED}
    assert counts["country"] <= 90
    assert counts["element"] <= 54
    assert counts["word"] <= 200
    nobodys = [{e.name for e in one.entities if e.role == "neither"} for one in (asked, library)]
    assert nobodys[0] == nobodys[1]


def test_a_missing_source_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(sources.WORDNET, str(tmp_path))
    with pytest.raises(SourceMissingError):
        sources.wordnet_folder()
    with pytest.raises(SourceMissingError):
        sources.package_folder("no_such_package")


def test_hints_at_hidden_entities_are_removed() -> None:
    names = (f"Land{number}" for number in range(99))
    hidden = next(e for n in names if (e := Entity("country", n, {}, {})).role == "neither")
    known = Entity(
        "country", "Chad", {"borders": hidden.name, "age": "17"}, {}, (f"It won over {hidden.name}.", "So.")
    )
    clean = sources.without_hints(known, sources.names_of_nobody([hidden, known]))
    assert clean.values == {"age": "17"}
    assert clean.prose == ("So.",)
