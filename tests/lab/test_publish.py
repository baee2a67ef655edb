"""Published figures: this repository's pages are what the figures give, and a page that is not is named."""

from __future__ import annotations

import json
import math
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from lab import publish
from lab.publish import FIGURES, QUOTES, ROOT, chosen, quoted, quoting, rounded, take, whole
from lab.statistics import Correlation, Summary
from lab.tables import Table, cell_json, cell_of

PUBLISHED_QUOTES = tomllib.loads((ROOT / QUOTES).read_text("utf-8"))


def test_the_pages_are_those_of_the_published_figures() -> None:
    assert publish.main(["--check"]) == 0, "run `python -m lab publish`"


def test_every_quote_stands_in_a_page() -> None:
    text = "".join(text for _, text in quoting(ROOT))
    assert all(f"<!-- figures: {name} -->" in text for name in PUBLISHED_QUOTES)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / FIGURES, tmp_path / FIGURES)
    for path, text in quoting(ROOT):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    return tmp_path


def test_a_figure_changed_by_hand_is_found(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = checkout / "lab" / "README.md"
    good = readme.read_text("utf-8")
    line = "| nothing: SmolLM2 alone | 0."
    readme.write_text(good.replace(f"{line}2", f"{line}9"), "utf-8")
    assert publish.main(["--check"]) == 1
    assert "README.md: differs" in capsys.readouterr().out
    assert publish.main([]) == 0
    assert readme.read_text("utf-8") == good
    assert publish.main(["--check"]) == 0


def test_new_figures_change_the_pages(checkout: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    data = json.loads((checkout / FIGURES / "real.json").read_text("utf-8"))
    for row in data["tables"]["real"]["rows"]:
        if row["condition"] == "edge alone":
            row["F1"] = {"n": 5, "mean": 0.123456789, "std": 0.1, "low": 0.1, "high": 0.2}
    (results / "tables.json").write_text(json.dumps(data), "utf-8")
    assert publish.main(["--take", str(results), "--name", "real"]) == 0
    page = (checkout / "lab" / "README.md").read_text("utf-8")
    assert "| nothing: SmolLM2 alone | 0.12 [0.10, 0.20] |" in page
    del data["tables"]["real"]
    (results / "tables.json").write_text(json.dumps(data), "utf-8")
    assert publish.main(["--take", str(results), "--name", "real"]) == 2  # a page quotes that table
    assert publish.main(["--check"]) == 0, "what is refused changes nothing"


def test_an_empty_quote_takes_nothing_behind_it(checkout: Path) -> None:
    empty = "<!-- figures: real -->\n<!-- end of figures -->\n"
    figures = {"real": json.loads((checkout / FIGURES / "real.json").read_text("utf-8"))}
    text = quoted(f"{empty}between\n{empty}", figures, PUBLISHED_QUOTES)
    assert text.count("\nbetween\n") == 1
    assert text.count("| nothing: SmolLM2 alone |") == 2
    assert quoted(text, figures, PUBLISHED_QUOTES) == text


def test_what_cannot_be_published_is_named(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "tables.json").write_text('{"tables": {}}', "utf-8")
    with pytest.raises(RequestError, match="expected title, description"):
        take(tmp_path)
    with pytest.raises(RequestError, match=r"expected one of .*real.*found 'unknown'"):
        quoted(shown("unknown"), {}, PUBLISHED_QUOTES)
    for name in ("real", "real/real"):
        with pytest.raises(RequestError, match=r"real\.json: expected published figures, found none"):
            quoted(shown(name), {}, PUBLISHED_QUOTES)
    with pytest.raises(RequestError, match=r"real\.json: expected table other, found none"):
        quoted(shown("real/other"), {"real": {"tables": {}}}, {})


def shown(name: str) -> str:
    return f"<!-- figures: {name} -->\n\n<!-- end of figures -->"


CELL = {"n": 9, "mean": 0.5, "std": 0.1, "low": 0.25, "high": 0.75}


def test_a_quote_finds_one_row_and_shows_its_cells() -> None:
    rows = [
        {"condition": "a", "steps": "1", "x": CELL, "y": 2.34},
        {"condition": "a", "steps": "2", "x": None},
    ]
    quote: dict[str, Any] = {
        "table": "s/t",
        "bold": ["one"],
        "rows": [{"label": "one", "condition": "a", "steps": "1"}],
        "columns": [
            {"header": "X", "column": "x"},
            {"header": "plain", "column": "x", "digits": 1, "interval": False},
            {"header": "y", "digits": 1},
        ],
    }
    assert chosen(quote, {"rows": rows}) == [
        "| sent | X | plain | y |",
        "|---|---|---|---|",
        "| **one** | 0.50 [0.25, 0.75] | 0.5 | 2.3 |",
    ]
    with pytest.raises(RequestError, match=r"s/t: expected one row with .* found 2"):
        chosen(quote | {"rows": [{"label": "one", "condition": "a"}]}, {"rows": rows})
    empty = quote | {"rows": [{"label": "two", "steps": "2"}]}
    assert chosen(empty, {"rows": rows})[-1] == "| two |  |  |  |"


def test_a_whole_table_has_the_digits_of_its_data() -> None:
    rows = [{"a": "x", "b": 1.0, "c": 3, "d": CELL}, {"a": "y", "b": 0.125, "d": None}]
    assert whole({"columns": ["a", "b", "c", "d"], "rows": rows}) == [
        "| a | b | c | d |",
        "|---|---|---|---|",
        "| x | 1.000 | 3 | 0.50 [0.25, 0.75] |",
        "| y | 0.125 |  |  |",
    ]


def test_cells_survive_json() -> None:
    summary = Summary(3, 0.1, 0.2, 0.0, 0.3)
    assert cell_of(cell_json(summary)) == summary
    assert cell_of(cell_json(Correlation(4, 0.5, 0.01))) == Correlation(4, 0.5, 0.01)
    assert math.isnan(cell_of(cell_json(Correlation(2, math.nan, math.nan))).rho)  # type: ignore[union-attr]
    assert [cell_of(cell_json(value)) for value in (None, 3, "a", 0.5)] == [None, 3, "a", 0.5]
    assert rounded({"a": [1.23456789, 2, "x"]}) == {"a": [1.23457, 2, "x"]}


def test_a_table_has_the_columns_of_its_first_row() -> None:
    found = Table.of("t", "T", [{"a": 1, "b": 2}, {"a": 3, "c": 4}], "note")
    assert found == Table("t", "T", ("a", "b"), [{"a": 1, "b": 2}, {"a": 3, "c": 4}], "note")
    assert Table.of("t", "T", []) == Table("t", "T", (), [])
