"""`python -m lab traces FILE`: figures of published runs that need no weights.

Responsible for the JSONL of published fills and for tables of the runs: coverage, runs, prefix share and
bytes by codec at each fraction; the controls that need no model (anchors alone, a prefix of as many tokens
alone); published fills scored again from their texts and ids; and a run as input of the selections. Not
responsible for the JSONL of the runs themselves (see `lab.published.published_runs`).

A text can only be scored against the whole output, so runs whose output was cut are left out of the scores,
and counted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.metrics import word_f1
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.translate import OPEN
from common.errors import InputError
from common.files import read_text, write_whole
from lab.experiments.paper.gaps import gap_scores
from lab.formats.codec_bench import measure
from lab.published.published_runs import (
    CANVAS,
    DEFAULT_TOKENIZER,
    Trace,
    TraceTokenizer,
    full_answer,
    json_rows,
    read_traces,
)
from lab.questions.similarity import chrf, edit_similarity, word_f1_set
from lab.report import print_table
from lab.tables import Answers, Row, Table

EPILOG = """example:
  python -m lab traces ../shared/traces/dream7b_dev.jsonl --json traces.json
  python -m lab traces results/ablation_anchors.json --edge bundles/smollm2 -o results-real/
"""
FILLS = "*fill*.jsonl"

STEPS = 128
"""Steps of the published runs."""


@dataclass(frozen=True)
class Fill:
    """A published fill of one run: the edge alone, and forced decoding by fraction.

    forced: fraction -> its stored figures, with `real_text`, `real_tokens` and `is_anchor`.
    """

    name: str
    alone: str
    forced: dict[str, dict[str, Any]]
    stored_alone: float


def read_fills(path: Path) -> list[Fill]:
    """The fills of a JSONL file, or of the published repository's results/gap_only_full.json.

    Raises RequestError naming the line, or the entry of the list, that is not a fill.
    """
    fills = []
    for where, given in json_rows(path, read_text(path)):
        try:
            row = json.loads(given) if isinstance(given, str) else given
            forced = {key.removeprefix("sf_"): value for key, value in row.items() if key.startswith("sf_")}
            for value in forced.values():
                if len(value["real_tokens"]) != len(value["is_anchor"]) or not isinstance(
                    value["real_text"], str
                ):
                    raise ValueError("real_tokens and is_anchor differ in length")
            name = f"{row['benchmark']}/{row['index']}"
            fills.append(Fill(name, str(row["alone_text"]), forced, float(row["alone_f1"])))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RequestError(
                f"{path}, {where}: expected a fill (index, benchmark, alone_text, sf_FRACTION), found "
                f"{type(error).__name__}: {error}"
            ) from None
    return fills


def decoder(tokenizer: TraceTokenizer) -> Callable[[Sequence[int]], str]:
    """A decoder of ids to text; special ones and those beyond the vocabulary are left out."""

    def text(ids: Sequence[int]) -> str:
        known = filter(tokenizer.contract.is_ordinary, ids)
        return b"".join(map(tokenizer.token_bytes, known)).decode("utf-8", "replace")

    return text


def final_tokens(trace: Trace, tokenizer: TraceTokenizer) -> list[int]:
    """The ids of a run's final answer from its start, as far as the file tells them.

    They are the anchors of the last fraction. A gap among these is filled with the tokens of the output's
    text, where these agree with the anchors around it. The answer may go on where the ids end: outputs are
    cut at 500 characters.
    """
    anchors = dict(trace.anchors[max(trace.anchors, key=float)])
    text = tokenizer.encode(trace.output)
    if trace.output_cut:
        text = text[:-1]  # the last token may be half of another one
    elif len(text) != trace.length:
        text = []  # other tokens than the model's
    differs = (p for p, id_ in sorted(anchors.items()) if p < len(text) and text[p] != id_)
    first = next(differs, None)
    if first is not None:
        sure = max((p for p in anchors if p < first), default=-1)
        text = text[: sure + 1]
    ids: list[int] = []
    for position in range(trace.length):
        if position in anchors:
            ids.append(anchors[position])
        elif position < len(text):
            ids.append(text[position])
        else:
            break
    return ids


def recorded_run(
    trace: Trace, fraction: str, tokenizer: TraceTokenizer, prompt_ids: Sequence[int] = ()
) -> Denoised:
    """A published run as it was at one of its fractions, as input of the selections and of `translate`.

    Published runs have no predictions. The final answer stands in for them, with probability 1: in another
    vocabulary the anchors then keep the places that the finished text gives them, which is generous to
    whatever is compared by it. The length is known where every token is committed. Raises RequestError for a
    fraction that the run lacks, or with anchors beyond what `final_tokens` knows.
    """
    if fraction not in trace.anchors:
        raise RequestError(
            f"{trace.name}: expected a fraction of {', '.join(trace.anchors)}, found {fraction}"
        )
    final = final_tokens(trace, tokenizer)
    canvas = max(CANVAS, trace.length)
    ids, when = [OPEN] * canvas, [0] * canvas
    step = steps_for(float(fraction), STEPS)
    for at in sorted((at for at in trace.anchors if float(at) <= float(fraction)), key=float, reverse=True):
        for position, id_ in trace.anchors[at]:
            if position >= len(final):
                raise RequestError(
                    f"{trace.name}: expected anchors before position {len(final)}, from where the recorded "
                    f"output is cut, found one at {position}. Leave this run out at fraction {fraction}."
                )
            ids[position], when[position] = id_, steps_for(float(at), STEPS)
    size = len(final)
    if trace.length < canvas and all(when[: trace.length]):
        ids[trace.length], when[trace.length] = min(tokenizer.contract.eos_ids), step
    return Denoised(
        prompt_ids=tuple(prompt_ids),
        ids=ids,
        when=when,
        predicted=final + [OPEN] * (canvas - size),
        confidence=[1.0] * size + [0.0] * (canvas - size),
        ending=[0.0] * size + [1.0] * (canvas - size),
        predicted_length=size,
        steps=step,
        total_steps=STEPS,
        mask_id=OPEN,
        eos_ids=tokenizer.contract.eos_ids,
    )


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
    text = decoder(tokenizer)
    by_name = {fill.name: fill for fill in fills}
    for trace in traces:
        if trace.output_cut:
            continue
        full = full_answer(trace, tokenizer)
        fill = by_name.get(trace.name)
        for fraction, pairs in trace.anchors.items():
            about = {"id": trace.name, "fraction": fraction, "filled": fill is not None}
            count = len(pairs)
            bare = [token for _, token in pairs]
            yield about | {"what": "anchors alone", **_scores(text(bare), trace.output)}
            yield about | {"what": "prefix alone", **_scores(text(full[:count]), trace.output)}
        if fill is None:
            continue
        yield {
            "id": trace.name,
            "fraction": "0",
            "filled": True,
            "what": "0.5B alone",
            **_scores(fill.alone, trace.output),
        }
        for fraction, stored in fill.forced.items():
            about = {
                "id": trace.name,
                "fraction": fraction,
                "filled": True,
                "what": "anchors, filled by 0.5B",
            }
            ids, reference = stored["real_tokens"], tokenizer.encode(trace.output)
            held = stored["is_anchor"]
            gaps = [p for p in range(min(len(ids), len(reference))) if not held[p]]
            gap_f1, accuracy = gap_scores(text, ids, reference, gaps)
            row = about | _scores(stored["real_text"], trace.output)
            row["edit"] = edit_similarity(ids, reference)
            yield row | ({"gap_f1": gap_f1, "gap_accuracy": accuracy} if gaps else {})


def _scores(text: str, reference: str) -> dict[str, float]:
    return {
        "f1": word_f1(text, reference),
        "f1_set": word_f1_set(text, reference),
        "chrf": chrf(text, reference),
    }


def tables(traces: Sequence[Trace], tokenizer: TraceTokenizer, fills: Sequence[Fill]) -> list[Table]:
    """All figures, as tables."""
    shapes: list[Row] = []
    for (fraction,), group in sorted(Answers(list(shape_rows(traces))).groups("fraction"), key=_fraction):
        row: Row = {"fraction": fraction, "N": len(group)}
        columns = {"anchors": "anchors", "coverage": "coverage", "complete": "complete", "runs": "runs"}
        columns["share in the leading run"] = "leading"
        shapes.append(row | {column: group.cell(field) for column, field in columns.items()})
    found = [Table.of("shape", "Anchors of the published runs", shapes)]
    prompts = {trace.name: tokenizer.encode(trace.prompt) for trace in traces}
    sizes = measure(traces, tokenizer, prompts)
    codecs = list(next(iter(sizes["fractions"].values())))
    bytes_rows: list[Row] = [
        {"fraction": fraction, **{name: by_codec[name]["mean"] for name in codecs}}
        for fraction, by_codec in sizes["fractions"].items()
    ]
    seen = "Codec compact's statistics come from published runs: these may be among them, and cost less then."
    found.append(Table("bytes", "Mean payload bytes", ("fraction", *codecs), bytes_rows, seen))
    text_row: Row = {name: values["mean"] for name, values in sizes["full_text"].items()}
    found.append(Table("text", "Mean bytes of the full text, without framing", tuple(text_row), [text_row]))
    answers = Answers(list(score_rows(traces, tokenizer, fills)))
    cut = sum(trace.output_cut for trace in traces)
    note = (
        f"Against the whole output; {cut} runs whose output was cut are left out. Prefix: of as many tokens."
    )
    bare = [row for row in answers.rows if row["what"] in ("anchors alone", "prefix alone")]
    for name, title, rows in (
        ("controls", "Controls without a model, all runs", bare),
        (
            "fills",
            "Published fills scored again, and the controls on the same runs",
            answers.where(filled=True).rows,
        ),
    ):
        lines: list[Row] = []
        for (fraction, what), group in sorted(Answers(rows).groups("fraction", "what"), key=_fraction):
            row = {"fraction": fraction, "what": what, "N": len(group)}
            columns = {"F1": "f1", "F1 (sets)": "f1_set", "chrF": "chrf"}
            columns |= {"gap F1": "gap_f1", "gap-token accuracy": "gap_accuracy"} if name == "fills" else {}
            lines.append(row | {column: group.cell(field) for column, field in columns.items()})
        if lines:
            found.append(Table.of(name, title, lines, note))
    return found


def _fraction(group: tuple[tuple[Any, ...], Answers]) -> tuple[float, str]:
    return float(group[0][0]), str(group[0][-1])


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
    try:
        traces = read_traces(args.file)
        tokenizer = TraceTokenizer(args.tokenizer or args.file.parent / DEFAULT_TOKENIZER)
        beside = [args.fills] if args.fills else sorted(args.file.parent.glob(FILLS))
        fills = [fill for path in beside if path != args.file for fill in read_fills(path)]
    except InputError as error:
        raise RequestError(str(error)) from error
    found = tables(traces, tokenizer, fills)
    for table in found:
        print(f"\n{table.title}\n")
        print_table(table)
        if table.note:
            print(f"\n{table.note}")
    if args.json:
        data = {table.name: table.to_json() for table in found}
        write_whole(args.json, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
    return 0
