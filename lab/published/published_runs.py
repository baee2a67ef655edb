"""Published runs of a diffusion model.

Responsible for two forms of the same runs (prompt, output, anchors at fractions of the steps), and the
Qwen2.5 tokenizer file: JSONL, one run a line, and the JSON list of the published repository, in which anchors
are an object from position to id, and prompt and output may be cut; and for a run as input of the selections.
Not responsible for codecs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.denoised import OPEN, Denoised
from common.cli import option
from common.errors import InputError
from common.files import read_text
from edge_runtime.text.tokenizer import Tokenizer
from payload.contract import Contract

CANVAS = 512
"""Response positions of the published runs, but for the smallest set."""

STEPS = 128
"""Steps of the published runs."""

PUBLISHED_OUTPUT = 500
"""Most characters of an output in the published repository's list, which does not say where one is cut: every
text of this size counts as cut.
"""

DEFAULT_TOKENIZER = Path("..") / "tokenizer" / "qwen2.5_tokenizer.json.gz"
"""Path of the tokenizer, relative to the folder of the traces."""


@dataclass(frozen=True)
class Trace:
    """One run. anchors: fraction -> (position, id) pairs, ascending; the output may be cut short.

    truth: what the data set gives as the answer: a number, a letter, a function's body; "" for none.
    """

    prompt: str
    output: str
    output_cut: bool
    length: int
    anchors: dict[str, tuple[tuple[int, int], ...]]
    benchmark: str
    index: str
    truth: str = ""
    difficulty: str = ""

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.index}"

    @property
    def id(self) -> str:
        """Its name as an item of an experiment."""
        return self.name


class TraceTokenizer(Tokenizer):
    """Qwen2.5's tokenizer file, in which names of special tokens are text; with its contract and its text."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(
                f"{path}: expected the traces' tokenizer file, found none; name it with --tokenizer FILE "
                "(tokenizer.json or tokenizer.json.gz of Qwen2.5)"
            )
        self.text = read_text(path)
        try:
            self.contract = Contract.of(json.loads(self.text), {})
            super().__init__(tokenizers.Tokenizer.from_str(self.text))
        except Exception as error:  # `tokenizers` raises bare Exception for every kind of failure
            raise InputError(f"{path}: expected a Qwen2-style tokenizer.json, found {error!r}") from None
        self._backend.encode_special_tokens = True

    def piece(self, id: int) -> str:
        """A token in the byte-level alphabet: a leading space is "Ġ", a line end "Ċ"."""
        return str(self._backend.id_to_token(id))


@dataclass(frozen=True)
class TraceOptions:
    traces: str | None = option(None, "JSONL of runs, or the published ablation_anchors.json", metavar="FILE")
    tokenizer: str | None = option(
        None,
        f"Dream's tokenizer.json[.gz] (default: {DEFAULT_TOKENIZER} beside the runs, else fetched)",
        metavar="FILE",
    )

    @property
    def runs(self) -> list[Trace]:
        """The runs of the named file. Raises RequestError without one, and what `read_traces` does."""
        if self.traces is None:
            raise RequestError("--traces: expected a file of runs, found none")
        return read_traces(Path(self.traces))


def read_traces(path: Path) -> list[Trace]:
    """Every run of a JSONL file, or of the published repository's results/ablation_anchors.json.

    Raises InputError naming the line, or the entry of the list, that is not a run.
    """
    text = read_text(path)
    traces = []
    for where, row in json_rows(path, text):
        try:
            traces.append(_trace(json.loads(row) if isinstance(row, str) else row))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}, {where}: expected a run (prompt, dream_output, gen_len, anchors by fraction), "
                f"found {type(error).__name__}: {error}. Of the published results only ablation_anchors.json "
                "has runs with their anchors."
            ) from None
    if not traces:
        raise InputError(f"{path}: expected at least one trace, found none")
    return traces


def json_rows(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Where each row of a JSONL file or of a JSON list stands, and its line or, of a list, its value."""
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}: expected a JSON list of runs, found {error}") from None
        yield from ((f"entry {number}", value) for number, value in enumerate(values, 1))
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield f"line {number}", line


def _trace(row: dict[str, Any]) -> Trace:
    prompt, output = str(row["prompt"]), str(row["dream_output"])
    cut = row.get("output_truncated", len(output) >= PUBLISHED_OUTPUT)
    return Trace(
        prompt=prompt,
        output=output,
        output_cut=bool(cut),
        length=int(row["gen_len"]),
        anchors={str(fraction): _pairs(given) for fraction, given in row["anchors"].items()},
        benchmark=str(row["benchmark"]),
        index=str(row["index"]),
        truth=str(row.get("ground_truth") or ""),
        difficulty=str(row.get("difficulty") or ""),
    )


def _pairs(given: Any) -> tuple[tuple[int, int], ...]:
    """Positions and ids, ascending, of a list of pairs or of an object from position to id."""
    pairs = given.items() if isinstance(given, dict) else given
    return tuple(sorted((int(p), int(t)) for p, t in pairs))


def full_answer(trace: Trace, tokenizer: TraceTokenizer) -> list[int]:
    """Ids of the whole answer: the last fraction's anchors where all are there, else the output's text."""
    last = max(trace.anchors, key=float)
    if len(trace.anchors[last]) == trace.length:
        return [token for _, token in trace.anchors[last]]
    return tokenizer.encode(trace.output)


def final_tokens(trace: Trace, tokenizer: TraceTokenizer) -> list[int]:
    """The ids of a run's final answer from its start, as far as the file tells them.

    They are the anchors of the last fraction. A gap among these is filled with the tokens of the output's
    text, where these agree with the anchors around it. The answer may continue after the ids end: outputs are
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
    if trace.length < canvas and all(when[: trace.length]):
        ids[trace.length], when[trace.length] = min(tokenizer.contract.eos_ids), step
    plan = {"steps": step, "total_steps": STEPS, "eos_ids": tokenizer.contract.eos_ids}
    return Denoised.of_draft(prompt_ids, final, [1.0] * len(final), ids=ids, when=when, **plan)
