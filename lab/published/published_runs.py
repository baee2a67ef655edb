"""Published runs of a diffusion model, read for the codec benchmark and the training of the model file.

Responsible for two forms of the same runs (prompt, output, anchors at fractions of the steps), and the
Qwen2.5 tokenizer file: JSONL, one run a line, and the JSON list of the published repository, in which anchors
are an object from position to id, and prompt and output may be cut. Not responsible for codecs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from common.errors import InputError
from common.files import read_text
from edge_runtime.text.tokenizer import Tokenizer
from payload.contract import Contract

CANVAS = 512
"""Response positions of the published runs, but for the smallest set."""

PUBLISHED_PROMPT, PUBLISHED_OUTPUT = 200, 500
"""Most characters of a prompt and of an output in the published repository's list, which does not say where
one is cut: every text of this size counts as cut.
"""

DEFAULT_TOKENIZER = Path("..") / "tokenizer" / "qwen2.5_tokenizer.json.gz"
"""Path of the tokenizer, relative to the folder of the traces."""


@dataclass(frozen=True)
class Trace:
    """One run. anchors: fraction -> (position, id) pairs, ascending; output and prompt may be cut short.

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
    prompt_cut: bool = False

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.index}"


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
    recovered = row.get("prompt_recovered")
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
        prompt_cut=recovered is None and len(prompt) >= PUBLISHED_PROMPT,
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
