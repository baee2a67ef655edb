"""`python -m lab traces FILE`: figures of published runs that need no weights, and the command.

Responsible for the JSONL of published fills and for tables of the runs: coverage, runs, prefix share and
bytes by codec at each fraction; the controls that need no model (anchors alone, a prefix of as many tokens
alone); and published fills scored again from their texts and ids. Not responsible for reading the runs (see
`published_runs`) or for filling them (see `recorded`).

A text can only be scored against the whole output, so runs whose output was cut are left out of the scores,
and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.metrics import word_f1
from common.cli import CommandParser
from common.errors import InputError
from common.files import read_text, write_whole
from lab.experiments.paper.gaps import gap_scores
from lab.formats.codec_bench import sizes_of, sizes_table, text_table
from lab.options import add_options, given
from lab.published.published_runs import (
    DEFAULT_TOKENIZER,
    Trace,
    TraceTokenizer,
    full_answer,
    json_rows,
    read_traces,
)
from lab.published.recorded_tables import RecordedOptions, fill_runs
from lab.report import print_tables
from lab.tables import Answers, Row, Table, rows

EPILOG = """example:
  python -m lab traces ../shared/traces/dream7b_dev.jsonl --json traces.json
  python -m lab traces results/ablation_anchors.json --edge bundles/smollm2 -o results-real/
"""
FILLS = "*fill*.jsonl"


@dataclass(frozen=True)
class Fill:
    """A published fill of one run: the edge alone, and forced decoding by fraction.

    forced: fraction -> its stored figures, with `real_text`, `real_tokens` and `is_anchor`.
    """

    name: str
    alone: str
    forced: dict[str, dict[str, Any]]


def read_fills(path: Path) -> list[Fill]:
    """The fills of a JSONL file, or of the published repository's results/gap_only_full.json.

    Raises RequestError naming the line, or the entry of the list, that is not a fill.
    """
    fills = []
    for where, line in json_rows(path, read_text(path)):
        try:
            row = json.loads(line) if isinstance(line, str) else line
            forced = {key.removeprefix("sf_"): value for key, value in row.items() if key.startswith("sf_")}
            for value in forced.values():
                if len(value["real_tokens"]) != len(value["is_anchor"]) or not isinstance(
                    value["real_text"], str
                ):
                    raise ValueError("real_tokens and is_anchor differ in length")
            name = f"{row['benchmark']}/{row['index']}"
            fills.append(Fill(name, str(row["alone_text"]), forced))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RequestError(
                f"{path}, {where}: expected a fill (index, benchmark, alone_text, sf_FRACTION), found "
                f"{type(error).__name__}: {error}"
            ) from None
    return fills


def shape_rows(traces: Sequence[Trace]) -> Iterator[dict[str, Any]]:
    """Coverage and contiguity of each run's anchors at each fraction."""
    for trace in traces:
        for fraction, pairs in trace.anchors.items():
            places = [position for position, _ in pairs]
            leading = next((i for i, p in enumerate(places) if i != p), len(places))
            yield {
                "id": trace.name,
                "fraction": fraction,
                "anchors": len(places),
                "coverage": len(places) / trace.length if trace.length else 1.0,
                "complete": float(len(places) == trace.length),
                "runs": sum(1 for i, p in enumerate(places) if not i or places[i - 1] != p - 1),
                "leading": leading / len(places) if places else None,
            }


def score_rows(
    traces: Sequence[Trace], tokenizer: TraceTokenizer, fills: Sequence[Fill]
) -> Iterator[dict[str, Any]]:
    """Scores of the controls without a model on every whole output, and of the published fills."""
    text = tokenizer.decode
    by_name = {fill.name: fill for fill in fills}
    for trace in traces:
        if trace.output_cut:
            continue
        full = full_answer(trace, tokenizer)
        fill = by_name.get(trace.name)
        about: dict[str, Any] = {"id": trace.name, "filled": fill is not None}
        for fraction, pairs in trace.anchors.items():
            bare = [token for _, token in pairs]
            for what, ids in (("anchors alone", bare), ("prefix alone", full[: len(pairs)])):
                yield about | {"fraction": fraction, "what": what, "f1": word_f1(text(ids), trace.output)}
        if fill is None:
            continue
        yield about | {"fraction": "0", "what": "0.5B alone", "f1": word_f1(fill.alone, trace.output)}
        for fraction, stored in fill.forced.items():
            ids, reference = stored["real_tokens"], tokenizer.encode(trace.output)
            gaps = [p for p in range(min(len(ids), len(reference))) if not stored["is_anchor"][p]]
            gap_f1, accuracy = gap_scores(text, ids, reference, gaps)
            row = about | {"fraction": fraction, "what": "anchors, filled by 0.5B"}
            row["f1"] = word_f1(stored["real_text"], trace.output)
            yield row | ({"gap_f1": gap_f1, "gap_accuracy": accuracy} if gaps else {})


SHAPE = {
    "anchors": "anchors",
    "coverage": "coverage",
    "complete": "complete",
    "runs": "runs",
    "share in the leading run": "leading",
}
SCORES = {"F1": "f1"}
GAPS = {"gap F1": "gap_f1", "gap-token accuracy": "gap_accuracy"}


def tables(traces: Sequence[Trace], tokenizer: TraceTokenizer, fills: Sequence[Fill]) -> list[Table]:
    """All figures, as tables."""
    sizes = [sizes_of(trace, tokenizer) for trace in traces]
    seen = "Codec compact's statistics come from published runs: these may be among them, and cost less then."
    answers = Answers(list(score_rows(traces, tokenizer, fills)))
    bare = Answers([row for row in answers.rows if row["what"] in ("anchors alone", "prefix alone")])
    cut = sum(trace.output_cut for trace in traces)
    note = (
        f"Against the whole output; {cut} runs whose output was cut are left out. Prefix: of as many tokens."
    )
    shapes = Answers(list(shape_rows(traces)))
    controls, filled = "Controls without a model, all runs", answers.where(filled=True)
    scored = "Published fills scored again, and the controls on the same runs"
    found = [
        Table.of("shape", "Anchors of the published runs", _lines(shapes, ("fraction",), SHAPE)),
        replace(sizes_table(sizes), note=seen),
        text_table(sizes),
        Table.of("controls", controls, _lines(bare, ("fraction", "what"), SCORES), note),
        Table.of("fills", scored, _lines(filled, ("fraction", "what"), SCORES | GAPS), note),
    ]
    return [table for table in found if table.rows]


def _lines(answers: Answers, keys: Sequence[str], columns: Mapping[str, str]) -> list[Row]:
    """A line for each group, by fraction."""
    groups = answers.by({key: key for key in keys})
    by_fraction = sorted(groups, key=lambda each: (float(str(each[0]["fraction"])), str(each[0].get("what"))))
    return rows(by_fraction, {"N": len, **columns})


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab traces",
        description="Figures of published runs alone, or filled by a real edge model (--edge).",
        epilog=EPILOG,
    )
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="runs: JSONL of prompt, dream_output, gen_len, anchors, or the published repository's "
        "results/ablation_anchors.json",
    )
    parser.add_argument(
        "--fills",
        type=Path,
        help="published fills: JSONL, or the published repository's results/gap_only_full.json (default: "
        f"{FILLS} beside FILE)",
    )
    parser.add_argument(
        "--tokenizer", type=Path, help=f"tokenizer.json[.gz] (default: {DEFAULT_TOKENIZER} beside FILE)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the tables as JSON")
    group = parser.add_argument_group("with a real edge model")
    group.add_argument("--edge", type=Path, metavar="BUNDLE", help="fill the runs with this bundle's model")
    group.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="results; run again to continue")
    add_options(group, RecordedOptions)
    args = parser.parse_args(argv)
    try:
        if args.edge:
            options = RecordedOptions(**given(RecordedOptions, vars(args)))
            fills = fills_beside(args.file, args.fills)
            score = partial(score_rows, fills=fills)
            return fill_runs(args.file, args.tokenizer, args.edge, args.output, options, score)
        tokenizer = TraceTokenizer(args.tokenizer or args.file.parent / DEFAULT_TOKENIZER)
        show(tables(read_traces(args.file), tokenizer, fills_beside(args.file, args.fills)), args.json)
        return 0
    except InputError as error:
        raise RequestError(str(error)) from error


def fills_beside(file: Path, fills: Path | None) -> list[Fill]:
    """The published fills of a file, or of those beside the runs."""
    beside = [fills] if fills else sorted(file.parent.glob(FILLS))
    return [fill for path in beside if path != file for fill in read_fills(path)]


def show(found: Sequence[Table], out: Path | None) -> None:
    """Prints tables with their notes, and writes them as JSON."""
    for table in found:
        print_tables([table])
        print(f"\n{table.note}")
    if out:
        data = {table.name: table.to_json() for table in found}
        write_whole(out, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
