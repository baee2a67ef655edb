"""Published figures: `python -m lab publish`, from results to the pages that show them.

    lab/results/NAME.json     tables of one measurement, numbers rounded
    lab/results/NAME.md       its tables, where no other page shows all of them
    lab/results/quotes.toml   which rows and columns a page shows
    any page                  `<!-- figures: QUOTE -->`, or NAME/TABLE for a whole table, up to
                              `<!-- end of figures -->`

Responsible for these pages and for saying which of them differ from the figures (`--check`, in the tests).
Not responsible for measuring (see `experiment`).
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from common.cli import CommandParser, run_command
from common.files import read_json, write_whole
from lab.report import markdown_table, named
from lab.store import TABLES
from lab.tables import Table, cell_of

ROOT = Path(__file__).parents[1]
FIGURES = Path("lab/results")
QUOTES = FIGURES / "quotes.toml"
DIGITS = 6
"""Significant digits of published numbers: more than any page shows, so that pages round as reports do."""

EPILOG = """examples:
  python -m lab publish --take results/shipped --name shipped   # then writes the pages
  python -m lab publish                                         # the pages again
  python -m lab publish --check                                 # exit code 1 where one differs
"""

Figures = Mapping[str, Any]
_BLOCK = re.compile(r"(<!-- figures: (.+?) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def table_of(name: str, data: Figures) -> Table:
    """A table from its JSON."""
    rows = [{column: cell_of(value) for column, value in row.items()} for row in data["rows"]]
    return Table(name, data["title"], data["columns"], rows, data["note"])


def found_table(place: str, figures: Mapping[str, Figures]) -> Figures:
    """The published table NAME/TABLE; raises RequestError where there is none."""
    source, _, name = place.partition("/")
    if source not in figures:
        raise RequestError(f"{FIGURES / source}.json: expected published figures, found none")
    if name not in figures[source]["tables"]:
        raise RequestError(f"{FIGURES / source}.json: expected table {name}, found none")
    table: Figures = figures[source]["tables"][name]
    return table


def whole(table: Figures) -> list[str]:
    """A table as it is, in Markdown; numbers of a column have as many digits as the one with most."""
    columns: Sequence[str] = table["columns"]
    lines = [_line(columns), "|" + "---|" * len(columns)]
    values = {name: [row.get(name) for row in table["rows"]] for name in columns}
    digits = {
        name: max((len(f"{x}".partition(".")[2]) for x in of if isinstance(x, float)), default=2)
        for name, of in values.items()
    }
    return lines + [_line(_cell(row.get(x), digits[x], True) for x in columns) for row in table["rows"]]


def chosen(quote: Figures, table: Figures) -> list[str]:
    """The rows and columns of a quote, in Markdown; raises RequestError where a row is not there."""
    columns = [
        {"column": column["header"], "digits": 2, "interval": True, **column} for column in quote["columns"]
    ]
    headers = [quote.get("first", "sent"), *(column["header"] for column in columns)]
    lines = [_line(headers), "|" + "---|" * len(headers)]
    for wanted in quote["rows"]:
        cells = {name: value for name, value in wanted.items() if name != "label"}
        found = [row for row in table["rows"] if all(row.get(name) == value for name, value in cells.items())]
        if len(found) != 1:
            raise RequestError(f"figures {quote['table']}: expected one row with {cells}, found {len(found)}")
        label = f"**{wanted['label']}**" if wanted["label"] in quote.get("bold", ()) else wanted["label"]
        lines.append(
            _line([label, *(_cell(found[0].get(x["column"]), x["digits"], x["interval"]) for x in columns)])
        )
    return lines


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any, digits: int, interval: bool) -> str:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
    if not interval:
        return f"{value['mean']:.{digits}f}"
    if value["low"] == value["high"] == value["mean"]:
        return f"{value['mean']:g}"
    return f"{value['mean']:.{digits}f} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def quoted(text: str, figures: Mapping[str, Figures], quotes: Figures) -> str:
    """The page with its figures rendered again; raises RequestError for what is not there."""

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if "/" in name:
            lines = whole(found_table(name, figures))
        elif name in quotes:
            lines = chosen(quotes[name], found_table(quotes[name]["table"], figures))
        else:
            raise RequestError(f"figures: expected one of {', '.join(quotes)}, or NAME/TABLE, found {name!r}")
        return match[1] + named("\n".join(lines)) + "\n" + match[3]

    return _BLOCK.sub(block, text)


def page(figures: Figures) -> str:
    """Description and every table of one set of figures."""
    lines = _head(figures)
    for table, data in figures["tables"].items():
        lines += markdown_table(table_of(table, data))
    return named("\n".join(lines)).rstrip("\n") + "\n"


def _head(figures: Figures) -> list[str]:
    return [f"# {figures['title']}", "", *(f"{sentence}\n" for sentence in figures["description"])]


def quoting(root: Path) -> Iterator[tuple[Path, str]]:
    """The pages of the checkout that show figures, as paths below `root`, and their texts."""
    rooms = (file.parent for file in sorted(root.glob("*/README.md")))
    for file in (root / "README.md", *(file for room in rooms for file in sorted(room.rglob("*.md")))):
        text = file.read_text("utf-8")
        if _BLOCK.search(text):
            yield file.relative_to(root), text


def pages(root: Path, taken: Mapping[str, Figures] | None = None) -> Iterator[tuple[Path, str]]:
    """Every page that has published figures, as a path below `root` and as it should be.

    taken: figures by name that are being published, in place of the files'.
    """
    found = {file.stem: read_json(file) for file in sorted((root / FIGURES).glob("*.json"))}
    figures: dict[str, Figures] = {**found, **(taken or {})}
    quotes = tomllib.loads((root / QUOTES).read_text("utf-8"))
    shown: set[str] = set()
    for path, text in quoting(root):
        shown |= {match[2] for match in _BLOCK.finditer(text)}
        yield path, quoted(text, figures, quotes)
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


def take(results: Path, note: str | None = None) -> Figures:
    """The figures of a results folder. Raises InputError, and RequestError for another file.

    note: a sentence added to their description.
    """
    data = read_json(results / TABLES)
    missing = [key for key in ("title", "description", "tables") if key not in data]
    if missing:
        raise RequestError(
            f"{results / TABLES}: expected {', '.join(missing)}, found none. Run the same command again with "
            "this version: it continues, and writes the tables anew."
        )
    kept = {key: data[key] for key in ("title", "description", "tables") if key in data}
    if note:
        kept["description"] = [*kept["description"], note]
    figures: Figures = rounded(kept)
    return figures


def file_text(figures: Figures) -> str:
    """The text of a figure file: an object a line."""
    text = json.dumps(figures, separators=(",", ":"), ensure_ascii=False)
    return text.replace('{"', '\n{"').lstrip("\n") + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab publish",
        description="Write the pages that show measured figures, or check them.",
        epilog=EPILOG,
    )
    parser.add_argument("--take", type=Path, metavar="FOLDER", help="publish this results folder first")
    parser.add_argument("--name", help="its name in lab/results (default: the folder's)")
    parser.add_argument("--note", help="a sentence for its description, such as what else the machine did")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where a page differs"
    )
    args = parser.parse_args(argv)

    def run() -> int:
        if not (ROOT / QUOTES).is_file():
            raise RequestError(f"{ROOT}: expected a checkout of the repository, found no {QUOTES}")
        if not args.take:
            return publish({}, args.check)
        return publish({args.name or args.take.resolve().name: take(args.take, args.note)}, args.check)

    return run_command("publish", run)


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
