"""The report: tables and plots in an HTML file, and the numbers as JSON.

Responsible for the presentation of what follows from the records. Not responsible for deriving it (see
`experiment`).
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from edge_runtime.system import Processor
from lab.experiment import About, Experiment
from lab.plots import Picture
from lab.store import TABLES, Record, Store
from lab.tables import Table


def machine() -> str:
    """The processor's name and the number of cores that may be used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{Processor.detect().name}, {cores} cores"


@dataclass(frozen=True)
class Report:
    """The content of a report.

    measured: number of items, by experiment. notes: on what was not measured, and why.
    """

    title: str
    about: About
    settings: Mapping[str, Any]
    measured: Mapping[str, int]
    notes: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Picture]

    @property
    def description(self) -> list[str]:
        """Sentences on what was run: prompts, models, plan and machine."""
        about, settings = self.about, self.settings
        words = []
        if "data" in settings:
            asked = settings.get("prompts", max(self.measured.values(), default=0))
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
        found = [" ".join([*words, f"Machine: {machine()}."])]
        if len(set(self.measured.values())) > 1:
            found.append(
                f"Prompts by phase: {', '.join(f'{name} {n}' for name, n in self.measured.items())}."
            )
        return [*found, *self.notes]


def build(
    experiments: Sequence[Experiment],
    about: About,
    settings: Mapping[str, Any],
    records: Mapping[str, Sequence[Record]],
    skipped: Mapping[str, str],
) -> Report:
    """Tables and plots of the records, by experiment; records with an error are left out."""
    good = {name: [r for r in rows if "error" not in r] for name, rows in records.items()}
    failed = {name: [r["error"] for r in rows if "error" in r] for name, rows in records.items()}
    found = [(each, good[each.name]) for each in experiments if good.get(each.name)]
    notes = [f"Not run: {name}: {why}" for name, why in skipped.items()]
    notes += [
        f"{len(of)} items without a figure in {name}; the first: {of[0]}" for name, of in failed.items() if of
    ]
    return Report(
        "Inverse speculation: results" if experiments[0].paper else experiments[0].title,
        about,
        settings,
        {each.name: len(rows) for each, rows in found},
        notes,
        [table for each, rows in found for table in each.tables(rows, about) if table.rows],
        [picture for each, rows in found for picture in each.plots(rows, about)],
    )


def write(report: Report, store: Store) -> None:
    """The files of a results folder."""
    data = {
        "title": report.title,
        "description": report.description,
        "about": asdict(replace(report.about, own=None)),
        "settings": report.settings,
        "measured": report.measured,
        "tables": {table.name: table.to_json() for table in report.tables},
    }
    store.write(TABLES, json.dumps(data, indent=1, allow_nan=False) + "\n")
    store.write("report.html", "\n".join(_html(report)) + "\n")
    for picture in report.pictures:
        store.write(f"{picture.name}.png", picture.data)


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables under their titles."""
    for table in tables:
        print(table.text())


_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:90rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-size:.8rem;font-variant-numeric:tabular-nums}
th,td{border-bottom:1px solid #ddd;padding:.2rem .5rem;text-align:left}
th{position:sticky;top:0;background:#fff}img{max-width:100%}
"""


def _html(report: Report) -> Iterator[str]:
    title = html.escape(report.title)
    yield f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{title}</title>"
    yield f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
    for sentence in report.description:
        yield f"<p>{html.escape(sentence)}</p>"
    for picture in report.pictures:
        title = html.escape(picture.title)
        yield f'<h2>{title}</h2><img alt="{title}" src="{picture.name}.png">'
    for table in report.tables:
        yield f"<h2>{html.escape(table.title)}</h2><p>{html.escape(table.note)}</p>"
        with pd.option_context("display.max_colwidth", None):
            yield table.frame.to_html(index=False, border=0)
    yield "</body></html>"
