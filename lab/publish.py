"""Published figures: `python -m lab publish`, from results to the pages that show them.

    lab/results/NAME.json   tables of one measurement, numbers rounded
    lab/results/NAME.md     its tables, where no other page shows all of them
    any page                `<!-- figures: NAME/TABLE -->`, or the name of one of `SUMMARIES`, up to
                            `<!-- end of figures -->`

Responsible for these pages and for saying which of them differ from the figures (`--check`, in the tests).
Not responsible for measuring (see `experiment`).
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from cloud_anchor.errors import RequestError
from common.cli import option, run_options
from common.files import read_json, write_whole
from lab.store import TABLES
from lab.tables import Table, markdown

ROOT = Path(__file__).parents[1]
FIGURES = Path("lab/results")
DIGITS = 6
"""Significant digits of published numbers: more than any page shows."""

EPILOG = """examples:
  python -m lab publish --take results/testbed --name testbed   # then writes the pages
  python -m lab publish                                         # the pages again
  python -m lab publish --check                                 # exit code 1 where one differs
"""

Figures = Mapping[str, Any]
_HEAD = re.compile(r"^(?:\|.*\|\n(?=\|-)|## .*|agreement .*)", re.MULTILINE)
_NAMES = re.compile(r"\b(graded|told)\b"), re.compile(r"\bright\b")
_BLOCK = re.compile(r"(<!-- figures: (.+?) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


class Summary(NamedTuple):
    """The rows and columns of a published table that README.md or docs/evidence.md shows.

    place: NAME/TABLE. rows: label -> the row's first cells. columns: header -> the table's column, its
    decimals, and whether the interval is shown. first: the header over the labels.
    """

    place: str
    rows: Mapping[str, tuple[str, ...]]
    columns: Mapping[str, tuple[str, int, bool]]
    first: str = "sent"

    def lines(self, table: Figures) -> str:
        """In Markdown, ours in bold; raises RequestError where a row is not there."""
        cells = len(next(iter(self.rows.values())))
        found = {tuple(row[key] for key in table["columns"][:cells]): row for row in table["rows"]}
        if absent := [key for key in self.rows.values() if tuple(key) not in found]:
            raise RequestError(f"figures {self.place}: expected the rows {absent}, found none")
        lines = [
            [f"**{label}**" if "edge-aware" in label else label]
            + [
                _cell(found[tuple(key)].get(column), digits, wide)
                for column, digits, wide in self.columns.values()
            ]
            for label, key in self.rows.items()
        ]
        return markdown(pd.DataFrame(lines, columns=[self.first, *self.columns]))


SUMMARIES = {
    name: Summary(**fields)
    for name, fields in tomllib.loads((ROOT / FIGURES / "summaries.toml").read_text("utf-8")).items()
}
"""The tables of README.md and docs/evidence.md."""


def whole(table: Figures) -> str:
    """A table as it is, in Markdown; numbers of a column have as many digits as the one with most."""
    columns: Sequence[str] = table["columns"]
    values = {name: [row.get(name) for row in table["rows"]] for name in columns}
    digits = {
        name: max((len(f"{x}".partition(".")[2]) for x in of if isinstance(x, float)), default=2)
        for name, of in values.items()
    }
    shown = [[_cell(row.get(name), digits[name]) for name in columns] for row in table["rows"]]
    return markdown(pd.DataFrame(shown, columns=list(columns)))


def _cell(value: Any, digits: int, interval: bool = True) -> str:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
    if not interval:
        return f"{value['mean']:.{digits}f}"
    if value["low"] == value["high"] == value["mean"]:
        return f"{value['mean']:g}"
    return f"{value['mean']:.{digits}f} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def named(text: str) -> str:
    """A page's text with the measures named as in docs/glossary.md, two of them in heads and notes only."""
    text = re.sub(r"\b(?:[Ww]ord )?F1\b", "agreement", text)
    return _HEAD.sub(lambda head: _NAMES[1].sub("accuracy", _NAMES[0].sub("coverage", head[0])), text)


def quoted(text: str, figures: Mapping[str, Figures]) -> str:
    """The page with its figures rendered again; raises RequestError for what is not there."""

    def block(match: re.Match[str]) -> str:
        summary = SUMMARIES.get(match[2])
        source, _, name = (summary.place if summary else match[2]).partition("/")
        if name not in figures.get(source, {"tables": {}})["tables"]:
            raise RequestError(f"{FIGURES / source}.json: expected table {name or match[2]}, found none")
        table = figures[source]["tables"][name]
        return match[1] + named(summary.lines(table) if summary else whole(table)) + "\n" + match[3]

    return _BLOCK.sub(block, text)


def page(figures: Figures) -> str:
    """Description and every table of one set of figures."""
    parts = [f"# {figures['title']}", *figures["description"]]
    for name, data in figures["tables"].items():
        table = Table.from_json(name, data)
        parts += [f"## {table.title}", markdown(table.frame), *([table.note] if table.note else ())]
    return named("\n\n".join(parts)) + "\n"


def quoting(root: Path) -> Iterator[tuple[Path, str]]:
    """The pages of the checkout that show figures, as paths below `root`, and their texts."""
    rooms = (root / "docs", *(file.parent for file in sorted(root.glob("*/README.md"))))
    for file in (root / "README.md", *(file for room in rooms for file in sorted(room.rglob("*.md")))):
        text = file.read_text("utf-8")
        if _BLOCK.search(text):
            yield file.relative_to(root), text


def pages(root: Path, taken: Mapping[str, Figures]) -> Iterator[tuple[Path, str]]:
    """Every page that has published figures, as a path below `root` and as it should be.

    taken: figures by name that are being published, in place of the files'.
    """
    found = {file.stem: read_json(file) for file in sorted((root / FIGURES).glob("*.json"))}
    figures: dict[str, Figures] = {**found, **taken}
    shown: set[str] = set()
    for path, text in quoting(root):
        shown |= {match[2] for match in _BLOCK.finditer(text)}
        yield path, quoted(text, figures)
    for name, data in figures.items():
        if not shown.issuperset(f"{name}/{table}" for table in data["tables"]):
            yield FIGURES / f"{name}.md", page(data)


def rounded(value: Any) -> Any:
    """JSON with floats of `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def take(results: Path, note: str | None) -> Figures:
    """The figures of a results folder. Raises InputError, and RequestError for another file.

    note: a sentence added to their description.
    """
    data = read_json(results / TABLES)
    if missing := [key for key in ("title", "description", "tables") if key not in data]:
        raise RequestError(f"{results / TABLES}: expected {', '.join(missing)}, found none. Run it again.")
    description = [*data["description"], *([note] if note else ())]
    figures: Figures = rounded({"title": data["title"], "description": description, "tables": data["tables"]})
    return figures


def file_text(figures: Figures) -> str:
    """The text of a figure file: an object a line."""
    text = json.dumps(figures, separators=(",", ":"), ensure_ascii=False)
    return text.replace('{"', '\n{"').lstrip("\n") + "\n"


@dataclass(frozen=True)
class PublishOptions:
    """Write the pages that show measured figures, or check them."""

    take: Path | None = option(None, "publish this results folder first", metavar="FOLDER")
    name: str | None = option(None, "its name in lab/results (default: the folder's)")
    note: str | None = option(None, "a sentence for its description, such as what else the machine did")
    check: bool = option(False, "write nothing; exit code 1 where a page differs")


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("lab publish", run, PublishOptions, argv, EPILOG)


def run(options: PublishOptions) -> int:
    if not (ROOT / FIGURES).is_dir():
        raise RequestError(f"{ROOT}: expected a checkout of the repository, found no {FIGURES}")
    folder = options.take
    name = options.name or (folder.resolve().name if folder else "")
    return publish({name: take(folder, options.note)} if folder else {}, options.check)


def publish(taken: Mapping[str, Figures], check: bool) -> int:
    """Writes the figures that are taken, and every page that differs; with `check` names them only."""
    wanted = list(pages(ROOT, taken))  # all of them before anything is written
    wanted += [(FIGURES / f"{name}.json", file_text(figures)) for name, figures in taken.items()]
    differs = [
        (path, text)
        for path, text in wanted
        if not (ROOT / path).is_file() or (ROOT / path).read_text("utf-8") != text
    ]
    for path, text in differs:
        if not check:
            write_whole(ROOT / path, text.encode())
        print(f"{path}: {'differs from the published figures' if check else 'written'}")
    if check and differs:
        print("publish: run `python -m lab publish`", file=sys.stderr)
    return int(check and bool(differs))


if __name__ == "__main__":
    sys.exit(main())
