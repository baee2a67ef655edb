"""Tables of published runs on a real edge model: all runs, by benchmark and by length of the answer.

Not responsible for measuring (see `recorded`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.experiment import About, Records
from lab.tables import Answers, Column, Label, Row, Table, against
from lab.tables import rows as make_rows

MAX_TOKENS = 256
"""Most tokens of an answer whose length is not known, as in the published script; more where Dream's is
longer.
"""

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


def group_of(length: int) -> str:
    """The name of an answer's group by its length."""
    return next(name for name, least in reversed(LENGTHS.items()) if length >= least)


def tables(records: Records, about: About) -> list[Table]:
    grouped = [record | {"group": group_of(record["length"])} for record in records]
    answers = Answers(
        [
            {name: record[name] for name in ("id", "benchmark", "group")} | row
            for record in grouped
            for row in record["answers"]
        ]
    )
    return [
        Table.of("real", "All runs", _lines(answers), f"Edge model: {records[0]['edge']}. {NOTE}"),
        Table.of("benchmarks", "By benchmark", _lines(answers, "benchmark")),
        Table.of("lengths", "By length of Dream's answer", _lines(answers, "group")),
        agreement(Answers(grouped)),
        beside_published(records),
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


def beside_published(records: Records) -> Table:
    """The published fills of whole outputs beside what was measured on the same runs."""
    filled = [record for record in records if record["published"]]
    theirs = [
        {**row, "id": record["id"], "filled by": "published"}
        for record in filled
        for row in record["published"]
    ]
    fractions = {row["fraction"] for row in theirs}
    ours = [
        {**row, "id": record["id"], "filled by": "here"}
        for record in filled
        for row in record["answers"]
        if row["fraction"] in fractions
    ]
    less = against(Answers(theirs), "f1", "fraction", "condition")
    columns: dict[str, Column] = {
        "N": len,
        "F1": "f1",
        "less the published": lambda group: less(group) if group.rows[0]["filled by"] == "here" else None,
    }
    groups = Answers(theirs + ours).by({**GROUPED, "filled by": "filled by"})
    note = (
        "Runs with a published fill, whose output was not cut. Published: filled by Qwen2.5-0.5B-Instruct, "
        "which writes on behind the last anchor or is cut there, as its own script decides; scored again "
        "from its text."
    )
    lines = make_rows(sorted(groups, key=lambda each: _order(each[1])), columns)
    return Table.of("fills", "Beside the published fills of the same runs", lines, note)


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
