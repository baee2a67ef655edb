"""Published figures: this repository's pages are what the figures give, and a page that is not is named."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from cloud_anchor.errors import RequestError
from lab import publish
from lab.publish import FIGURES, ROOT, SUMMARIES, Summary, quoted, quoting, rounded, take, whole
from lab.statistics import Correlation
from lab.statistics import Summary as Sample
from lab.tables import Table, cell_json, cell_of

CELL = {"n": 9, "mean": 0.5, "std": 0.1, "low": 0.25, "high": 0.75}


def test_the_pages_are_those_of_the_published_figures() -> None:
    assert publish.main(["--check"]) == 0, "run `python -m lab publish`"
    text = "".join(text for _, text in quoting(ROOT))
    assert all(f"<!-- figures: {name} -->" in text for name in SUMMARIES)
    pages = {path.stem for path, _ in publish.pages(ROOT, {})}
    assert {file.stem for file in (ROOT / FIGURES).glob("*.md")} <= pages | {"LOG", "README"}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / FIGURES, tmp_path / FIGURES)
    for path, text in quoting(ROOT):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    return tmp_path


def test_new_figures_change_the_pages(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    data = json.loads((checkout / FIGURES / "testbed.json").read_text("utf-8"))
    data["tables"]["by length"]["rows"][0]["F1, under 20"] = CELL | {"mean": 0.123456789}
    (results / "tables.json").write_text(json.dumps(data), "utf-8")
    assert publish.main(["--take", str(results), "--name", "testbed", "--note", "Under load."]) == 0
    assert "| 0.12 " in (checkout / "docs/evidence.md").read_text("utf-8")
    assert "\nUnder load.\n" in (checkout / FIGURES / "testbed.md").read_text("utf-8")
    assert publish.main(["--check"]) == 0
    quoting_page = checkout / "docs/evidence.md"
    quoting_page.write_text(quoting_page.read_text("utf-8").replace("| 0.12 ", "| 0.99 "), "utf-8")
    capsys.readouterr()
    assert publish.main(["--check"]) == 1
    assert "docs/evidence.md: differs" in capsys.readouterr().out
    del data["tables"]["by length"]
    (results / "tables.json").write_text(json.dumps(data), "utf-8")
    assert publish.main(["--take", str(results), "--name", "testbed"]) == 2, "a page shows that table"


def test_what_cannot_be_published_is_named(tmp_path: Path) -> None:
    (tmp_path / "tables.json").write_text('{"tables": {}}', "utf-8")
    with pytest.raises(RequestError):
        take(tmp_path, None)
    for name in ("unknown", "summary", "real/other"):
        with pytest.raises(RequestError):
            quoted(f"<!-- figures: {name} -->\n<!-- end of figures -->", {"real": {"tables": {}}})


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_a_table_has_the_digits_of_its_data() -> None:
    rows = [{"a": "x|y", "b": 1.0, "c": 3, "d": CELL}, {"a": "y", "b": 0.125, "d": None}]
    table = {"columns": ["a", "b", "c", "d"], "rows": rows}
    shown = cells(whole(table).replace(r"\|", "/"))
    assert shown[0] == ["a", "b", "c", "d"]
    assert shown[2:] == [["x/y", "1.000", "3", "0.50 [0.25, 0.75]"], ["y", "0.125", "", ""]]
    columns = {"X": ("d", 2, True), "plain": ("d", 1, False), "b": ("b", 1, True)}
    found = Summary("s/t", {"edge-aware": ("x|y", 1.0)}, columns).lines(table)  # type: ignore[dict-item]
    assert cells(found)[2:] == [["**edge-aware**", "0.50 [0.25, 0.75]", "0.5", "1.0"]]
    with pytest.raises(RequestError):
        Summary("s/t", {"a": ("none", "")}, columns).lines(table)


def test_cells_survive_json() -> None:
    for cell in (Sample(3, 0.1, 0.2, 0.0, 0.3), Correlation(4, 0.5, 0.01), None, 3, "a", 0.5):
        assert cell_of(cell_json(cell)) == cell
    assert math.isnan(cell_of(cell_json(Correlation(2, math.nan, math.nan))).rho)  # type: ignore[union-attr]
    assert rounded({"a": [1.23456789, 2, "x"]}) == {"a": [1.23457, 2, "x"]}


def test_a_table_has_the_columns_of_its_first_row() -> None:
    found = Table.of("t", "T", [{"a": 1, "b": 2}, {"a": 3, "c": 4}], "note")
    assert found == Table("t", "T", ("a", "b"), [{"a": 1, "b": 2}, {"a": 3, "c": 4}], "note")
    assert Table.of("t", "T", []) == Table("t", "T", (), [])
