"""Published figures: `python -m lab.pages`, from results to the pages that quote them.

    results/NAME.json   tables and verdicts of one results folder, numbers rounded
    results/NAME.md     its tables; RESULTS.md has the main table and verdicts of the shipped pair
    README.md                 quotes rows between `<!-- figures: QUOTE -->` and `<!-- end of figures -->`

Responsible for these pages and for saying which of them differ from the figures (`--check`, in the tests).
Not responsible for measuring (see `runner`, `recorded_tables`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from common.cli import run_command
from common.files import read_json, write_whole
from lab.report import claims_table, markdown_table, summary_line
from lab.store import TABLES
from lab.tables import Claim, Table, cell_of

ROOT = Path(__file__).parents[1]
FIGURES = Path("lab/results")
PAGES = (Path("README.md"), FIGURES / "README.md")
"""Pages that quote figures."""
MAIN_TABLE = "headline"
DIGITS = 6
"""Significant digits of published numbers: more than any page shows, so that pages round as reports do."""

EPILOG = """examples:
  python -m lab.pages --take results/shipped --name shipped   # then writes the pages
  python -m lab.pages                                         # the pages again
  python -m lab.pages --check                                 # exit code 1 where one differs
"""


@dataclass(frozen=True)
class Shown:
    """A column of a quote. interval: with its 95% interval."""

    column: str
    digits: int = 2
    interval: bool = True


@dataclass(frozen=True)
class Quote:
    """Rows of a published table.

    source, table: the file in `figures` and the table in it. rows: label -> the cells by which the row is
    found. columns: header -> what is shown under it. bold: labels in bold.
    """

    source: str
    table: str
    rows: Mapping[str, Mapping[str, str]]
    columns: Mapping[str, Shown]
    first: str = "sent"
    bold: frozenset[str] = frozenset()


_REAL_COLUMNS = {
    "F1": Shown("F1"),
    "right": Shown("right"),
    "tokens sent": Shown("sent", 1, interval=False),
    "bytes, compact": Shown("compact", 1, interval=False),
    "predictive": Shown("predictive", 1, interval=False),
    "edge passes": Shown("passes", 1, interval=False),
}


_SHIPPED_COLUMNS = {
    "F1": Shown("F1"),
    "right": Shown("right"),
    "tokens sent": Shown("sent", 1, interval=False),
    "bytes": Shown("bytes", 1, interval=False),
}


_TESTBED_COLUMNS = {
    "F1, under 20": Shown("F1, under 20", interval=False),
    "20 to 59": Shown("F1, 20 to 59", interval=False),
    "60 and more": Shown("F1, 60 and more"),
    "right, 60 and more": Shown("right, 60 and more"),
    "bytes, 60 and more": Shown("bytes, 60 and more", 0, interval=False),
}


def _share(passes: str, condition: str) -> dict[str, str]:
    return {"passes": passes, "condition": condition}


def _after(steps: int, condition: str) -> dict[str, str]:
    return {"steps": f"{steps} of 128", "condition": condition}


def _at(share: str, condition: str) -> dict[str, str]:
    return {"sent at": share, "condition": condition}


QUOTES: Mapping[str, Quote] = {
    "testbed": Quote(
        "testbed",
        "by length",
        {
            "nothing: the edge model alone": _share("19 (10%)", "edge alone"),
            "the paper's anchors": _share("19 (10%)", "anchors, filled"),
            "every prediction": _share("19 (10%)", "early stop: every prediction, rule 0.9"),
            "the first predictions, of as many bytes": _share(
                "19 (10%)", "early stop, the first of as many, continued"
            ),
            "the surest predictions, of as many bytes": _share(
                "19 (10%)", "early stop, the surest of as many, filled"
            ),
            "random tokens of the finished answer, of as many bytes": _share(
                "19 (10%)", "as many at random, filled"
            ),
            "a prefix of the finished answer, of as many bytes": _share(
                "19 (10%)", "prefix of as many, continued"
            ),
            "edge-aware (the default)": _share("19 (10%)", "edge-aware, rule 0.9"),
            "the same after 25% of the steps": _share("48 (25%)", "edge-aware, rule 0.9"),
            "the same after 40%": _share("76 (40%)", "edge-aware, rule 0.9"),
            "the full run": _share("192 (100%)", "full run"),
        },
        _TESTBED_COLUMNS,
        bold=frozenset({"edge-aware (the default)"}),
    ),
    "summary": Quote(
        "testbed",
        "by length",
        {
            "nothing: the device alone": _share("19 (10%)", "edge alone"),
            "the paper's anchors": _share("19 (10%)", "anchors, filled"),
            "a prefix of the finished answer, of as many bytes": _share(
                "19 (10%)", "prefix of as many, continued"
            ),
            "edge-aware (the default)": _share("19 (10%)", "edge-aware, rule 0.9"),
            "the same after 25% of the steps": _share("48 (25%)", "edge-aware, rule 0.9"),
        },
        _TESTBED_COLUMNS,
        bold=frozenset({"edge-aware (the default)"}),
    ),
    "real": Quote(
        "real",
        "real",
        {
            "nothing: SmolLM2 alone": _at("", "edge alone"),
            **{f"the paper's anchors at {x}": _at(x, "anchors, filled") for x in ("5%", "10%", "15%", "25%")},
            "their leading run at 10%": _at("10%", "leading run, continued"),
            "a prefix of as many tokens as at 10%": _at("10%", "prefix of as many, continued"),
            "as many tokens at random as at 10%": _at("10%", "as many at random, filled"),
            "the whole answer, edge-aware": _at("", "whole answer, edge-aware"),
            "the same with guard 1": _at("", "whole answer, edge-aware, guard 1"),
            "Dream-7B itself": _at("", "full run"),
        },
        _REAL_COLUMNS,
        bold=frozenset({"the whole answer, edge-aware"}),
    ),
    "shipped": Quote(
        "shipped",
        "fill-confidence",
        {
            "nothing: the edge model alone": _after(0, "edge alone"),
            "the paper's anchors: the tokens committed so far": _after(12, "anchors, filled"),
            "a prefix of as many tokens": _after(12, "prefix of as many, continued"),
            "as many tokens at random": _after(12, "as many at random, filled"),
            "edge-aware, without parallel commits": _after(12, "edge-aware, p >= 0"),
            "every prediction, parallel commits": _after(12, "early stop, parallel commits"),
            "edge-aware, parallel commits (the default)": _after(12, "edge-aware, parallel commits"),
            "the full run, 128 steps": _after(128, "full run"),
        },
        _SHIPPED_COLUMNS,
        bold=frozenset({"edge-aware, parallel commits (the default)"}),
    ),
}
"""The quotes by name."""


def table_of(name: str, data: Mapping[str, Any]) -> Table:
    """A table from its JSON."""
    rows = [{column: cell_of(value) for column, value in row.items()} for row in data["rows"]]
    return Table(name, data["title"], data["columns"], rows, data["note"])


def render(quote: Quote, figures: Mapping[str, Any]) -> list[str]:
    """A quote as a table in Markdown; raises RequestError where the table or one of its rows is not there."""
    if quote.table not in figures["tables"]:
        raise RequestError(f"{FIGURES / quote.source}.json: expected table {quote.table}, found none")
    rows = figures["tables"][quote.table]["rows"]
    lines = [f"| {quote.first} | {' | '.join(quote.columns)} |", "|" + "---|" * (len(quote.columns) + 1)]
    for label, wanted in quote.rows.items():
        found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
        if len(found) != 1:
            raise RequestError(
                f"{FIGURES / quote.source}.json: expected one row of table {quote.table} with "
                f"{dict(wanted)}, found {len(found)}"
            )
        cells = [_cell(found[0].get(shown.column), shown) for shown in quote.columns.values()]
        title = f"**{label}**" if label in quote.bold else label
        lines.append(f"| {' | '.join([title, *cells])} |")
    return lines


def _cell(value: Any, shown: Shown) -> str:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return str(value) if isinstance(value, int | str) else f"{value:.{shown.digits}f}"
    text = f"{value['mean']:.{shown.digits}f}"
    if value["low"] == value["high"] == value["mean"] and shown.interval:
        return f"{value['mean']:g}"
    if not shown.interval:
        return text
    return f"{text} [{value['low']:.{shown.digits}f}, {value['high']:.{shown.digits}f}]"


_BLOCK = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def quoted(text: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with every quote rendered anew; raises RequestError for an unknown one."""

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if name not in QUOTES:
            raise RequestError(f"figures: expected one of {', '.join(QUOTES)}, found {name!r}")
        quote = QUOTES[name]
        if quote.source not in figures:
            raise RequestError(f"{FIGURES / quote.source}.json: expected published figures, found none")
        return match[1] + "\n".join(render(quote, figures[quote.source])) + "\n" + match[3]

    return _BLOCK.sub(block, text)


def page(name: str, figures: Mapping[str, Any]) -> str:
    """Description and every table of one set of figures."""
    lines = [f"# {figures['title']}", "", *(f"{sentence}\n" for sentence in figures["description"])]
    for table, data in figures["tables"].items():
        lines += markdown_table(table_of(table, data))
    return "\n".join(lines).rstrip("\n") + "\n"


def verdicts(figures: Mapping[str, Any]) -> str:
    """RESULTS.md: description, main table and verdicts, and where the other tables are."""
    claims = [Claim(**claim) for claim in figures["claims"]]
    lines = [f"# {figures['title']}", "", *(f"{sentence}\n" for sentence in figures["description"])]
    lines += [
        "Every table: [shipped.md](shipped.md); the numbers: `shipped.json`.",
        "",
    ]
    if MAIN_TABLE in figures["tables"]:
        lines += [*markdown_table(table_of(MAIN_TABLE, figures["tables"][MAIN_TABLE]))[1:], ""]
    lines += ["## What holds, what does not, and why", "", summary_line(claims), "", *claims_table(claims)]
    return "\n".join(lines) + "\n"


def pages(root: Path, taken: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[tuple[Path, str]]:
    """Every page that has published figures, as a path below `root` and as it should be.

    taken: figures by name that are being published, in place of the files'.
    """
    found = {file.stem: read_json(file) for file in sorted((root / FIGURES).glob("*.json"))}
    figures = {**found, **(taken or {})}
    for name, data in figures.items():
        yield FIGURES / f"{name}.md", page(name, data)
        if data.get("claims") and name == "shipped":
            yield FIGURES / "RESULTS.md", verdicts(data)
    for path in PAGES:
        yield path, quoted((root / path).read_text("utf-8"), figures)


def rounded(value: Any) -> Any:
    """JSON with floats of `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def take(results: Path, note: str | None = None) -> Mapping[str, Any]:
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
    kept = {key: data[key] for key in ("title", "description", "claims", "tables") if key in data}
    if note:
        kept["description"] = [*kept["description"], note]
    figures: Mapping[str, Any] = rounded(kept)
    return figures


def _file_text(figures: Mapping[str, Any]) -> str:
    return (
        json.dumps(figures, separators=(",", ":"), ensure_ascii=False).replace('{"', '\n{"').lstrip("\n")
        + "\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.pages",
        description="Write the pages that quote measured figures, or check them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--take", type=Path, metavar="FOLDER", help="publish this results folder first")
    parser.add_argument("--name", help="its name in results (default: the folder's)")
    parser.add_argument("--note", help="a sentence for its description, such as what else the machine did")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where a page differs"
    )
    args = parser.parse_args(argv)
    return run_command("pages", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    if not (ROOT / "README.md").is_file():
        raise RequestError(f"{ROOT}: expected a checkout of the repository, found no README.md")
    taken = {}
    if args.take:
        taken[args.name or args.take.resolve().name] = take(args.take, args.note)
    wanted = list(pages(ROOT, taken))  # all of them before anything is written
    wanted += [(FIGURES / f"{name}.json", _file_text(figures)) for name, figures in taken.items()]
    differs = [
        (path, text)
        for path, text in wanted
        if not (ROOT / path).is_file() or (ROOT / path).read_text("utf-8") != text
    ]
    for path, text in differs:
        if not args.check:
            write_whole(ROOT / path, text.encode())
        print(f"{path}: {'differs from the published figures' if args.check else 'written'}")
    if args.check and differs:
        print("pages: run `python -m lab.pages`", file=sys.stderr)
    return int(bool(args.check and differs))


if __name__ == "__main__":
    sys.exit(main())
