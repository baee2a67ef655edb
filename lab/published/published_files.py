"""`python -m lab published FOLDER`: the published repository's results, read as they are.

Responsible for the JSON files of its `results/` that have no anchors, and for tables from their texts and
times: fills and templates scored again, edge sizes in pairs, gap-only scores, and the timing with equation 1.
Not responsible for ablation_anchors.json, whose runs `traces` reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.metrics import word_f1
from common.cli import CommandParser
from common.errors import InputError
from common.files import read_text
from lab.cost import equation_1
from lab.published.traces import show_tables
from lab.statistics import Correlation, spearman
from lab.tables import Answers, Column, Row, Table, less_than, rows

EPILOG = """example:
  git clone https://github.com/benwade/inverse-speculation-dlm
  python -m lab published inverse-speculation-dlm/results --json published.json
  python -m lab traces inverse-speculation-dlm/results/ablation_anchors.json \\
      --fills inverse-speculation-dlm/results/gap_only_full.json
"""

FILLED, TEMPLATE, ALONE = "anchors, filled", "template in the prompt", "edge alone"
TOKENS = 100
"""Tokens of an answer, as section 4.8 counts them."""


def fills(data: Any) -> list[Table]:
    """dlm_anchor_results.json: the small set, with every text scored again against the full output."""
    texts = []
    for number, run in enumerate(data):
        full = str(run["dream_text"])
        alone = run["small_alone"]
        texts.append(_scored(number, ALONE, "", alone["text"], full, alone["f1_vs_dream"]))
        for fraction, found in run["anchor_forced"].items():
            for what, key in ((FILLED, "forced"), (TEMPLATE, "template")):
                given = found[key]
                texts.append(_scored(number, what, fraction, given["text"], full, given["f1"]))
    groups = Answers(texts).by({"fraction": "fraction", "what": "what"})
    lines = rows(groups, {"N": len, "F1 as stored": "stored", "F1 of the texts": "f1"})
    note = "F1 of the texts is over multisets of words, as in the other files."
    return [_table("fills", "dlm_anchor_results.json", lines, note)]


def _table(name: str, title: str, lines: Sequence[Row], note: str) -> Table:
    """Raises IndexError for a file without figures."""
    return Table(name, title, tuple(lines[0]), lines, note)


def _scored(number: int, what: str, fraction: str, text: Any, full: str, stored: Any) -> dict[str, Any]:
    found = {"id": str(number), "what": what, "fraction": fraction, "stored": float(stored)}
    return found | {"f1": word_f1(str(text), full)}


def sizes(data: Any) -> list[Table]:
    """llm_size_results.json: both edge models, prompt by prompt."""
    answers = [
        {"id": str(number), "model": model, "fraction": fraction, "f1": float(f1)}
        for model, runs in data.items()
        for number, run in enumerate(runs)
        for fraction, f1 in {ALONE: run["alone_f1"], **{k: v["f1"] for k, v in run["forced"].items()}}.items()
    ]
    small, *others = data
    lines: list[Row] = []
    for labels, group in Answers(answers).by({"fraction": "fraction"}):
        base = group.where(model=small)
        line: Row = labels | {"N": len(base), small: base.cell("f1")}
        for name in others:
            other = group.where(model=name)
            line |= {name: other.cell("f1"), f"{name} less {small}": less_than(base, "f1")(other)}
        lines.append(line)
    return [_table("sizes", "llm_size_results.json", lines, "F1 as stored, paired by prompt.")]


def gaps(data: Any) -> list[Table]:
    """gap_only_full.json: Table 5, over the runs covered in part, and those with a gap to compare."""
    runs = []
    for run in data:
        for key, found in run.items():
            if key.startswith("sf_") and found["coverage_pct"] < 100:
                row = {"id": f"{run['benchmark']}/{run['index']}", "fraction": key.removeprefix("sf_")}
                row |= {"coverage": found["coverage_pct"] / 100, "alone": run["alone_f1"]}
                names = ("gap_word_f1", "gap_token_accuracy", "full_f1", "n_gap_compared")
                runs.append(row | {name: found[name] for name in names})

    def rho(group: Answers) -> Correlation:
        return spearman(group.values("coverage"), group.values("gap_word_f1"))

    groups: list[tuple[Row, Answers]] = []
    for labels, group in Answers(runs).by({"fraction": "fraction"}):
        compared = Answers([row for row in group.rows if row["n_gap_compared"]])
        groups += [(labels | {"runs": "covered in part"}, group)]
        groups += [(labels | {"runs": "with a gap to compare"}, compared)]
    columns: dict[str, Column] = {
        "N": len,
        "gap-only F1": "gap_word_f1",
        "gap-token accuracy": "gap_token_accuracy",
        "edge alone, whole answer": "alone",
        "full F1": "full_f1",
        "gap tokens": "n_gap_compared",
        "gap F1 and coverage": rho,
        "rho from": lambda group: rho(group).interval[0],
        "rho to": lambda group: rho(group).interval[1],
    }
    note = (
        f"{len(data)} runs. Figures as stored, in which an answer without a gap to compare has a gap-only F1 "
        "of 1. The edge alone was scored on its whole answer, the anchors' fill on the gaps."
    )
    return [_table("gaps", "gap_only_full.json (Table 5)", rows(groups, columns), note)]


def timing(data: Any) -> list[Table]:
    """supplement_timing.json: Table 6 and equation 1 with its times."""
    steps = {int(name.removeprefix("steps_")): found for name, found in data["dream"].items()}
    c_dlm = 1000 * steps[max(steps)]["mean_s"] / max(steps)
    c_ar = float(data["qwen"]["mean_per_token_ms"])
    lines: list[Row] = []
    for count, found in sorted(steps.items()):
        cost = equation_1(count, max(steps), TOKENS, c_dlm, c_ar)
        lines.append(
            {
                "steps": count,
                "measured, ms": 1000 * float(found["mean_s"]),
                "tokens committed": float(found["mean_committed"]),
                "equation 1, ms": cost.cloud + cost.device,
                "times, one after the other": cost.full / (cost.cloud + cost.device),
                "times, both at once": cost.full / max(cost.cloud, cost.device),
                "cloud saved": 1 - cost.cloud_share,
            }
        )
    about = data["config"]
    note = (
        f"{about['dream_model']} and {about['qwen_model']} on {about['device']}, {about['n_prompts']} "
        f"prompts, {TOKENS} tokens at {c_ar:.1f} ms. Where all {about['max_new_tokens']} tokens are "
        "committed, the run was planned for so many steps, and not stopped there."
    )
    return [_table("timing", "supplement_timing.json (Table 6)", lines, note)]


FILES: Mapping[str, Callable[[Any], list[Table]]] = {
    "dlm_anchor_results.json": fills,
    "llm_size_results.json": sizes,
    "gap_only_full.json": gaps,
    "supplement_timing.json": timing,
}


def tables(folder: Path) -> Iterator[Table]:
    """The tables of every file that is there; raises RequestError for one in another form, and for none."""
    there = [name for name in FILES if (folder / name).is_file()]
    if not there:
        raise RequestError(f"{folder}: expected one of {', '.join(FILES)}, found none")
    for name in there:
        try:
            yield from FILES[name](json.loads(read_text(folder / name)))
        except InputError as error:
            raise RequestError(str(error)) from error
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise RequestError(
                f"{folder / name}: expected the published form of this file, found {type(error).__name__}: "
                f"{error}"
            ) from error


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab published",
        description="Tables of the published repository's result files, as they are.",
        epilog=EPILOG,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the published repository's results/")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the tables as JSON")
    args = parser.parse_args(argv)
    show_tables(list(tables(args.folder)), args.json)
    return 0
