"""The report: one self-contained HTML file, the same as Markdown, and the numbers as JSON.

Responsible for the presentation of tables, claims and plots. Not responsible for statements about results,
which the phases derive from the figures. Every number in the HTML is a link to its JSON, at the end of the
same file and in tables.json.
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
from lab.tables import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, VERDICTS, Claim, Table, cell_json, show

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
    claims: Sequence[Claim]
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
    """Tables, claims and plots of the records, by experiment; records with an error are left out."""
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
        [claim for each, rows in found for claim in each.claims(rows, about)],
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


def summary_line(claims: Sequence[Claim]) -> str:
    """Counts of the verdicts, as text."""
    counts = {word: sum(claim.verdict == word for claim in claims) for word in VERDICTS}
    return (
        f"Of {len(claims)} statements {counts[HOLDS]} hold, {counts[FAILS]} do not, {counts[UNDECIDED]} are "
        f"undecided by these figures, and {counts[NOT_MEASURED]} are not measured: these models cannot tell. "
        "A verdict is decided by the 95% interval of a paired difference, or by the interval or p that is "
        "named with it."
    )


FIRST = "What people come for"
ANSWERS: Sequence[tuple[str, str]] = (
    ("Do a few anchors help the device?", "Anchors raise the edge model's F1 over its own"),
    ("Are they worth more than a prefix of the answer?", "Control: anchors are worth more than a prefix"),
    (
        "Does a selection that knows the edge model do better?",
        "With parallel commits this project's selection",
    ),
    ("Are the answers as often right as the full run's?", "The pipeline keeps"),
    ("Is a payload smaller than the text?", "Anchors take fewer bytes than the full answer"),
)
"""The questions that come first, each with the beginning of the statement that answers it."""


def answers(claims: Sequence[Claim]) -> list[tuple[str, Claim]]:
    """The first questions, each with the first decided statement on it; those that nothing was measured for
    are left out.
    """
    found = []
    for question, start in ANSWERS:
        about = [claim for claim in claims if claim.paper.startswith(start)]
        about.sort(key=lambda claim: claim.verdict not in (HOLDS, FAILS))
        found += [(question, claim) for claim in about[:1]]
    return found


def main_plot(pictures: Sequence[Picture]) -> list[Picture]:
    """The pictures, first the one that compares what is sent."""
    return sorted(pictures, key=lambda picture: not picture.name.startswith("fill"))


def decided(claims: Sequence[Claim]) -> tuple[list[Claim], list[Claim]]:
    """The statements with a verdict, and those that the figures leave open."""
    open_ = [claim for claim in claims if claim.verdict in (UNDECIDED, NOT_MEASURED)]
    return [claim for claim in claims if claim not in open_], open_


def to_markdown(report: Report) -> str:
    """report.md."""
    lines = [f"# {report.title}", "", *(f"{sentence}\n" for sentence in run_description(report))]
    lines += first_answers(report.claims)
    lines += [f"![{picture.title}]({picture.name}.png)" for picture in main_plot(report.pictures)[:1]]
    lines += statements(report.claims)
    for table in report.tables:
        lines += markdown_table(table)
    return named("\n".join(lines)) + "\n"


def first_answers(claims: Sequence[Claim]) -> list[str]:
    """What people come for, as lines of Markdown."""
    found = [f"- **{ask}** {_said(claim)}" for ask, claim in answers(claims)]
    return [f"## {FIRST}", "", AGREEMENT, "", *found, ""] if found else []


def _said(claim: Claim) -> str:
    yes = {HOLDS: "Yes", FAILS: "No"}.get(claim.verdict, "These figures cannot tell")
    return f"{yes}{f', {claim.where}' if claim.where else ''}: {claim.found}"


def statements(claims: Sequence[Claim]) -> list[str]:
    """All statements with their verdicts, the open ones folded, as lines of Markdown."""
    if not claims:
        return []
    closed, open_ = decided(claims)
    lines = [
        "",
        "## What holds, what does not, and why",
        "",
        summary_line(claims),
        "",
        *_claims_table(closed),
    ]
    if open_:
        title = f"<details><summary>{len(open_)} statements that these figures leave open</summary>"
        lines += ["", title, "", *_claims_table(open_), "", "</details>"]
    return lines


def _claims_table(claims: Sequence[Claim]) -> list[str]:
    lines = ["| statement | measured at | verdict | figures | what bears on it |", "|---|---|---|---|---|"]
    for claim in claims:
        cells = (claim.paper, claim.where, f"**{claim.verdict}**", claim.found, claim.why)
        lines.append("| " + " | ".join(_markdown(cell) for cell in cells) + " |")
    return lines


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
.holds{color:#0a6b2d}.fails{color:#a3160f}.open{color:#7a5b00}
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
        *_first(report.claims),
        *map(_picture, main_plot(report.pictures)[:1]),
        *(_claims(report.claims) if report.claims else ()),
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


def _first(claims: Sequence[Claim]) -> Iterator[str]:
    found = [f"<li><b>{html.escape(ask)}</b> {html.escape(_said(claim))}" for ask, claim in answers(claims)]
    if found:
        yield f"<h2>{FIRST}</h2><p>{AGREEMENT}</p><ul>{''.join(found)}</ul>"


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    yield f"<h2>What holds, what does not, and why</h2><p>{html.escape(summary_line(claims))}</p>"
    closed, open_ = decided(claims)
    yield from _rows(closed)
    if open_:
        yield f"<details><summary>{len(open_)} statements that these figures leave open</summary>"
        yield from _rows(open_)
        yield "</details>"


def _rows(claims: Sequence[Claim]) -> Iterator[str]:
    head = "<th>statement<th>measured at<th>verdict<th>figures<th>what bears on it"
    yield f"<div class=wide><table><tr>{head}</tr>"
    for claim in claims:
        kind = {HOLDS: "holds", FAILS: "fails"}.get(claim.verdict, "open")
        paper, where, said, found, why = (
            html.escape(text) for text in (claim.paper, claim.where, claim.verdict, claim.found, claim.why)
        )
        yield f"<tr><td>{paper}<td>{where}<td class={kind}><b>{said}</b><td>{found}<td>{why}</tr>"
    yield "</table></div>"


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
    """tables.json: models and plan, claims, and every table by name."""
    data = {
        "title": report.title,
        "description": list(run_description(report)),
        "about": report.about.to_json(),
        "settings": dict(report.settings),
        "items": report.items,
        "measured": dict(report.measured),
        "skipped": dict(report.skipped),
        **({"claims": [claim.to_json() for claim in report.claims]} if report.claims else {}),
        "tables": {table.name: table.to_json() for table in report.tables},
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"
