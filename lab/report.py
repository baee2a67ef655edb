"""The report: one self-contained HTML file, the same as Markdown, and the numbers as JSON.

Responsible for the presentation of tables and plots. Every number in the HTML is a link to its JSON, at the
end of the same file and in tables.json.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.experiment import About, Experiment
from lab.machine import machine
from lab.plots import Picture
from lab.statistics import Correlation, Summary
from lab.store import TABLES, Record, Store
from lab.tables import Table, cell_json, show

TITLE = "Inverse speculation: results"


@dataclass(frozen=True)
class Report:
    """The content of a report.

    titles: of the experiments, by name. measured: number of items. skipped: reason. failed: errors of items.
    """

    title: str
    titles: Mapping[str, str]
    about: About
    settings: Mapping[str, Any]
    items: int
    measured: Mapping[str, int]
    tables: Sequence[Table]
    skipped: Mapping[str, str]
    failed: Mapping[str, Sequence[str]]
    pictures: Sequence[Picture]


def build(
    experiments: Sequence[Experiment],
    about: About,
    settings: Mapping[str, Any],
    records: Mapping[str, Sequence[Record]],
    skipped: Mapping[str, str],
) -> Report:
    """Tables and plots of the records, by experiment; records with an error are left out."""
    good = {name: [r for r in rows if "error" not in r] for name, rows in records.items()}
    failed = {name: [str(r["error"]) for r in rows if "error" in r] for name, rows in records.items()}
    found = [(each, good[each.name]) for each in experiments if good.get(each.name)]
    return Report(
        TITLE if experiments[0].paper else experiments[0].title,
        {each.name: each.title for each in experiments},
        about,
        settings,
        max((len(rows) for rows in records.values()), default=0),
        {each.name: len(rows) for each, rows in found},
        [table for each, rows in found for table in each.tables(rows, about) if table.rows],
        {name: why for name, why in skipped.items() if not good.get(name)},
        {name: errors for name, errors in failed.items() if errors},
        [picture for each, rows in found for picture in each.plots(rows, about)],
    )


def run_description(report: Report) -> Iterator[str]:
    """Sentences on what was run: prompts, models, plan and machine."""
    about, settings = report.about, report.settings
    words = []
    if "data" in settings:
        asked = settings.get("prompts", report.items)  # of each cell, where the items are no questions
        words.append(f"{asked} prompts ({', '.join(settings['data'])}; seed {settings['seed']}).")
    if about.model:
        kind = f" in {settings['dtype']}" if settings.get("dtype") else ""
        kind += f", {settings['batch']} answers a batch," if settings.get("batch") else ""
        words.append(
            f"Diffusion model: {about.model}{kind} ({about.parameters / 1e6:.2f} million parameters), "
            f"{about.total_steps} steps on a canvas of {about.canvas}."
        )
        edges = (f"{name} ({count / 1e6:.2f} million parameters)" for name, count in about.edges.items())
        words.append(f"Edge: {', '.join(edges)}.")
    yield " ".join([*words, f"Machine: {machine()}."])
    if len(set(report.measured.values())) > 1:
        yield f"Prompts by phase: {', '.join(f'{name} {n}' for name, n in report.measured.items())}."
    for name, why in report.skipped.items():
        yield f"Not run: {report.titles[name]}: {why}"
    for name, errors in report.failed.items():
        yield f"{len(errors)} items without a figure in {name}; the first: {errors[0]}"


AGREEMENT = (
    "Agreement is the F-measure of the words in common with the full diffusion run, or with what is named: "
    "how much of its text came across, not whether it is right."
)


def named(text: str) -> str:
    """A page's text with F1 by the name that it has on pages."""
    return re.sub(r"\b(?:[Ww]ord )?F1\b", "agreement", text)


def write(report: Report, store: Store) -> None:
    """The files of a results folder."""
    store.write(TABLES, to_json(report))
    store.write("report.md", to_markdown(report))
    store.write("report.html", to_html(report))
    for picture in report.pictures:
        store.write(f"{picture.name}.png", picture.data)


def main_plot(pictures: Sequence[Picture]) -> list[Picture]:
    """The pictures, first the one that compares what is sent."""
    return sorted(pictures, key=lambda picture: not picture.name.startswith("fill"))


def to_markdown(report: Report) -> str:
    """report.md."""
    lines = [f"# {report.title}", "", *(f"{sentence}\n" for sentence in run_description(report))]
    lines += [AGREEMENT, ""] if report.about.model else []
    lines += [f"![{picture.title}]({picture.name}.png)" for picture in main_plot(report.pictures)[:1]]
    for table in report.tables:
        lines += markdown_table(table)
    return named("\n".join(lines)) + "\n"


def markdown_table(table: Table) -> list[str]:
    """A table under its title, as lines of Markdown."""
    lines = ["", f"## {table.title}", ""]
    lines.append("| " + " | ".join(_markdown(column) for column in table.columns) + " |")
    lines.append("|" + "---|" * len(table.columns))
    for row in table.rows:
        lines.append("| " + " | ".join(_markdown(show(row.get(c))) for c in table.columns) + " |")
    return lines + (["", _markdown(table.note)] if table.note else [])


def print_table(table: Table) -> None:
    """Print a table in aligned columns."""
    lines = [list(table.columns)] + [
        [show(row.get(column)) for column in table.columns] for row in table.rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables under their titles."""
    for table in tables:
        print(f"\n{table.title}\n")
        print_table(table)


def write_tables(store: Store, title: str, description: Sequence[str], tables: Sequence[Table]) -> None:
    """Writes tables.json, which `pages` can publish, and report.md into the folder, and prints the tables."""
    lines = [f"# {title}", "", *(f"{sentence}\n" for sentence in description)]
    for table in tables:
        lines += markdown_table(table)
    print_tables(tables)
    store.write("report.md", "\n".join(lines) + "\n")
    data = {
        "title": title,
        "description": list(description),
        "tables": {table.name: table.to_json() for table in tables},
    }
    store.write(TABLES, json.dumps(data, indent=1) + "\n")


def _markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:90rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem}
table{border-collapse:collapse;font-size:.8rem;font-variant-numeric:tabular-nums}
th,td{border-bottom:1px solid #ddd;padding:.2rem .5rem;text-align:left;vertical-align:top}
th{position:sticky;top:0;background:#fff}.wide{overflow-x:auto}
td a{color:inherit;text-decoration:none}td a:hover{text-decoration:underline}
.note{color:#555;font-size:.85rem;max-width:60rem}img{max-width:100%}
pre{font-size:.7rem;background:#f6f6f6;padding:.5rem;overflow-x:auto}pre span:target{background:#ffe680}
"""


def to_html(report: Report) -> str:
    """report.html, self-contained."""
    parts = [
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{html.escape(report.title)}</title>",
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(report.title)}</h1>",
        *(f"<p>{html.escape(sentence)}</p>" for sentence in run_description(report)),
        "<nav><p>"
        + " · ".join(f'<a href="#{t.name}">{html.escape(t.title)}</a>' for t in report.tables)
        + "</p></nav>",
        f"<p>{AGREEMENT}</p>" if report.about.model else "",
        *map(_picture, main_plot(report.pictures)[:1]),
        "<h2>Further plots</h2>" if report.pictures[1:] else "",
        *map(_picture, main_plot(report.pictures)[1:]),
        *(part for table in report.tables for part in _table(table)),
    ]
    data = [
        "<h2>The numbers as JSON</h2>",
        *(part for table in report.tables for part in _json(table)),
        "</body></html>",
    ]
    return "\n".join([part if "base64" in part else named(part) for part in parts] + data) + "\n"


def _picture(picture: Picture) -> str:
    encoded, title = base64.b64encode(picture.data).decode("ascii"), html.escape(picture.title)
    return f'<h3>{title}</h3><img alt="{title}" src="data:image/png;base64,{encoded}">'


def _anchor(table: Table, row: int, column: int) -> str:
    return f"json-{table.name}-{row}-{column}"


def _table(table: Table) -> Iterator[str]:
    yield f'<h2 id="{table.name}">{html.escape(table.title)}</h2>'
    yield f"<p class=note>{html.escape(table.note)}</p>" if table.note else ""
    yield "<div class=wide><table><tr>" + "".join(f"<th>{html.escape(c)}" for c in table.columns) + "</tr>"
    for index, row in enumerate(table.rows):
        cells = []
        for place, column in enumerate(table.columns):
            cell = row.get(column)
            text = html.escape(show(cell))
            linked = isinstance(cell, Summary | Correlation | int | float)
            cells.append(
                f'<td><a href="#{_anchor(table, index, place)}">{text}</a>' if linked else f"<td>{text}"
            )
        yield "<tr>" + "".join(cells) + "</tr>"
    yield "</table></div>"


def _json(table: Table) -> Iterator[str]:
    yield f"<h3>tables.json: {html.escape(table.name)}</h3><pre>"
    for index, row in enumerate(table.rows):
        cells = [
            f'<span id="{_anchor(table, index, place)}">'
            + html.escape(f"{json.dumps(column)}: {json.dumps(cell_json(row.get(column)))}", quote=False)
            + "</span>"
            for place, column in enumerate(table.columns)
        ]
        yield f"{index}: {{" + ", ".join(cells) + "}"
    yield "</pre>"


def to_json(report: Report) -> str:
    """tables.json: models and plan, and every table by name."""
    data = {
        "title": report.title,
        "description": list(run_description(report)),
        "about": report.about.to_json(),
        "settings": dict(report.settings),
        "items": report.items,
        "measured": dict(report.measured),
        "skipped": dict(report.skipped),
        "tables": {table.name: table.to_json() for table in report.tables},
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"
