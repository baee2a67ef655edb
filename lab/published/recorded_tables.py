"""`python -m lab traces FILE --edge BUNDLE -o FOLDER`: published runs on a real edge model.

Responsible for its options, its files and the tables that follow from its records: all runs, by benchmark and
by length of the answer. Not responsible for measuring (see `recorded`).
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_anchor.errors import CloudError, RequestError
from common.cli import option
from edge_runtime.engine.prepack import cache_root
from edge_runtime.runtime import EdgeRuntime
from lab.case import Edge
from lab.conditions import ALONE, ANCHORS
from lab.loading import parameters
from lab.options import require_at_least
from lab.published.published_runs import DEFAULT_TOKENIZER, Trace, TraceTokenizer, read_traces
from lab.published.qwen_ranks import tokenizer_of_ranks
from lab.published.recorded import MAX_TOKENS, RECORDS, RealPair, measure_runs
from lab.published.wheel_files import HUMANEVAL, QWEN_RANKS, fetched
from lab.questions.items import Item, read_items
from lab.report import machine, write_tables
from lab.run import track
from lab.store import Record, Store
from lab.tables import Answers, Column, Label, Row, Table, less_than
from lab.tables import rows as make_rows

TITLE = "Published runs of Dream-7B on a real edge model"
LENGTHS = {"under 20 tokens": 0, "20 to 59": 20, "60 to 119": 60, "120 and more": 120}
"""Groups of answers by their least number of Dream's tokens."""

COLUMNS = {
    "F1": "f1",
    "exact": "exact",
    "right": "right",
    "sent": "sent",
    "compact": "compact",
    "predictive": "predictive",
    "passes": "passes",
}
NOTE = (
    "F1 and exact: against Dream's text, its first 500 characters where the published output was cut. right: "
    "the checkable answer, of runs whose output was not cut (number of them in `judged`). sent: tokens. "
    "compact, predictive: payload bytes, the prompt known to both sides; predictive with the variant's own "
    "activations. passes: of the edge model on the device. The controls are told the answer's length where "
    "the paper's anchors determine it. Anchors behind a gap have their place from the finished text, which "
    f"is generous to the paper. An answer without a length ends by itself or after {MAX_TOKENS} tokens (more "
    "where Dream's is longer). Cells: mean ± standard deviation [95% bootstrap interval]."
)


@dataclass(frozen=True)
class RecordedOptions:
    variant: str | None = option(None, "variant of the bundle (default: the bundle's)")
    limit: int | None = option(None, "only N of the runs, chosen by the seed", kind=int, metavar="N")
    humaneval: str | None = option(
        None,
        f"HumanEval's JSONL[.gz], whose tests judge the code (default: fetched, {HUMANEVAL.requirement})",
        metavar="FILE",
    )
    seed: int = option(0, "of the order of the runs and of random anchors")
    threads: int | None = option(None, "threads (default: the processor's fast cores)", kind=int)

    def __post_init__(self) -> None:
        require_at_least(self, 1, "limit", "threads")


def fill_runs(
    file: Path,
    tokenizer: Path | None,
    bundle: Path,
    output: Path | None,
    options: RecordedOptions,
    published: Callable[[Sequence[Trace], TraceTokenizer], Iterable[dict[str, Any]]],
) -> int:
    """The command with an edge model; published: scores of the published fills of runs (`score_rows`).

    Raises CloudError, EdgeError or InputError.
    """
    if output is None:
        raise RequestError("--output: expected a folder for the results, found none (-o FOLDER)")
    traces = read_traces(file)
    dream = TraceTokenizer(tokenizer or published_tokenizer(file.parent / DEFAULT_TOKENIZER))
    random.Random(options.seed).shuffle(traces)
    chosen = traces[: options.limit]
    edge = open_edge(bundle, options.variant, options.threads)
    pair = RealPair(dream, edge, tests_of(chosen, options.humaneval))
    own = edge.runtime.bundle
    settings = {
        "runs": hashlib.sha256(file.read_bytes()).hexdigest(),
        "edge": edge.name,
        "weights": own.manifest.fingerprint(own.variant_name).hex(),
        "seed": options.seed,
    }
    store = Store(output, settings)
    track(len(chosen), measure_runs(pair, chosen, store, options.seed))
    names = {trace.name for trace in chosen}
    records = [record for id_, record in store.records(RECORDS).items() if id_ in names]
    good = [record for record in records if "error" not in record]
    failed = [f"{record['id']}: {record['error']}" for record in records if "error" in record]
    description = [f"{len(good)} runs. Edge model: {edge.name}. Machine: {machine()}."]
    description += [f"Not measured: {'; '.join(failed)}"] if failed else []
    fills = list(published(chosen, dream))
    write_tables(store, TITLE, description, [*tables(good), *beside_published(good, fills)])
    return 0


def open_edge(path: Path, variant: str | None, threads: int | None) -> Edge:
    """An edge model under the name of its checkpoint and variant."""
    runtime = EdgeRuntime.open(path, variant, threads=threads)
    model = runtime.bundle.manifest.model
    return Edge(f"{model.id} {runtime.bundle.variant_name}", runtime, parameters(model))


def published_tokenizer(beside: Path) -> Path:
    """Dream's tokenizer file: `beside` where it is there, else made of fetched ranks. Raises CloudError."""
    if beside.is_file():
        return beside
    return tokenizer_of_ranks(fetched(QWEN_RANKS), cache_root() / "qwen2.5_tokenizer.json")


def tests_of(traces: Sequence[Trace], file: str | None) -> list[Item]:
    """The tasks of HumanEval where a run is of one. Says so on standard error where they cannot be had."""
    if not any(trace.benchmark == "humaneval" for trace in traces):
        return []
    try:
        return read_items("humaneval", Path(file) if file else fetched(HUMANEVAL))
    except CloudError as error:
        if file:
            raise
        print(f"traces: the answers to HumanEval are not judged: {error}", file=sys.stderr)
        return []


def group_of(length: int) -> str:
    """The name of an answer's group by its length."""
    return next(name for name, least in reversed(LENGTHS.items()) if length >= least)


def tables(records: Sequence[Record]) -> list[Table]:
    """All tables of the records."""
    grouped = [record | {"group": group_of(record["length"])} for record in records]
    answers = Answers(
        [
            {name: record[name] for name in ("id", "benchmark", "group")} | row
            for record in grouped
            for row in record["answers"]
        ]
    )
    return [
        Table.of("real", "All runs", _lines(answers), NOTE),
        Table.of("benchmarks", "By benchmark", _lines(answers, "benchmark")),
        Table.of("lengths", "By length of Dream's answer", _lines(answers, "group")),
        agreement(Answers(grouped)),
    ]


def _sent_at(fraction: str) -> str:
    return f"{100 * float(fraction):g}%" if fraction else ""


GROUPED: dict[str, Label] = {"sent at": ("fraction", _sent_at), "condition": "condition"}


def _order(group: Answers, *fields: str) -> list[Any]:
    """Where a group stands: by length or name, then by fraction; those of no fraction first."""
    first = group.rows[0]
    values = [LENGTHS.get(first[field], first[field]) for field in fields]
    return [*values, float(first.get("fraction") or 0)]


def _lines(answers: Answers, *fields: str) -> list[Row]:
    """A line for each value of the fields, fraction and condition."""
    groups = answers.by({field: field for field in fields} | GROUPED)
    ordered = sorted(groups, key=lambda each: _order(each[1], *fields))
    return make_rows(ordered, {"N": len, "judged": lambda group: len(group.values("right")), **COLUMNS})


PUBLISHED = {"0.5B alone": ALONE, "anchors, filled by 0.5B": ANCHORS}
"""What is filled in the published fills, and the condition that it is here."""


def beside_published(records: Sequence[Record], fills: Sequence[dict[str, Any]]) -> list[Table]:
    """The published fills of whole outputs, scored again, beside what was measured on the same runs."""
    theirs = [
        {"id": fill["id"], "fraction": "" if fill["fraction"] == "0" else fill["fraction"], "f1": fill["f1"]}
        | {"filled by": "published", "condition": PUBLISHED[fill["what"]]}
        for fill in fills
        if fill["what"] in PUBLISHED
    ]
    fractions, names = ({fill[key] for fill in theirs} for key in ("fraction", "id"))
    ours = [
        {**row, "id": record["id"], "filled by": "here"}
        for record in records
        for row in record["answers"]
        if record["id"] in names and not record["cut"] and row["fraction"] in fractions
    ]
    both = {row["id"] for row in ours}
    answers = Answers([row for row in theirs if row["id"] in both] + ours)
    published = answers.where(**{"filled by": "published"})

    def same(group: Answers) -> Answers:
        if group.rows[0]["filled by"] == "published":
            return Answers()
        return published.where(**{key: group.rows[0][key] for key in ("fraction", "condition")})

    columns: dict[str, Column] = {"N": len, "F1": "f1", "less the published": less_than(same, "f1")}
    groups = answers.by({**GROUPED, "filled by": "filled by"})
    lines = make_rows(sorted(groups, key=lambda each: _order(each[1])), columns)
    note = (
        "Runs with a published fill, whose output was not cut. Published: filled by Qwen2.5-0.5B-Instruct, "
        "which writes on behind the last anchor or is cut there, as its own script decides; scored again "
        "from its text."
    )
    title = "Beside the published fills of the same runs"
    return [Table.of("fills", title, lines, note)] if lines else []


def agreement(runs: Answers) -> Table:
    """Tokens that the edge model would not have written, and doubled words, by group."""

    def total(name: str) -> Callable[[Answers], int]:
        return lambda group: int(sum(group.values(name)))

    columns: dict[str, Column] = {
        "N": len,
        "tokens": total("edge_tokens"),
        "edge differs": lambda group: total("differs")(group) / max(1, total("edge_tokens")(group)),
        "output cut": total("cut"),
        "with a doubled word": lambda group: sum(row["doubled"] > 0 for row in group.rows),
        "doubled words": total("doubled"),
    }
    groups: list[tuple[Row, Answers]] = [({"runs": "all runs"}, runs)]
    for field in ("benchmark", "group"):
        groups += sorted(runs.by({"runs": field}), key=lambda each: _order(each[1], field))
    note = (
        "edge differs: share of the tokens of Dream's answer, in the edge model's vocabulary, at which that "
        "model, given all before them, prefers another. A doubled word stands directly behind the same word "
        "(the the); 128 steps on 512 positions commit four tokens a step."
    )
    lines = make_rows(groups, columns)
    return Table.of("agreement", "Where the edge model differs, and doubled words", lines, note)
