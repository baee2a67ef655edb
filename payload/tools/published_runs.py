"""Published runs of a diffusion model, read for the codec benchmark and the training of the model file.

Responsible for the JSONL of traces (prompt, output, anchors at fractions of the steps) and the Qwen2.5
tokenizer file. Not responsible for codecs. `tokenizers` is imported only when a tokenizer is opened: nothing
else in `payload` needs it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from payload.contract import Contract
from payload.files import InputError, read_text

CANVAS = 512
"""Response positions of the published runs, but for the smallest set."""

DEFAULT_TOKENIZER = Path("..") / "tokenizer" / "qwen2.5_tokenizer.json.gz"
"""Path of the tokenizer, relative to the folder of the traces."""


@dataclass(frozen=True)
class Trace:
    """One run. anchors: fraction -> (position, id) pairs; output may be cut short."""

    prompt: str
    output: str
    output_cut: bool
    length: int
    anchors: dict[str, tuple[tuple[int, int], ...]]
    name: str


class TraceTokenizer:
    """A `TokenBytes` over a Hugging Face tokenizer file with a byte-level alphabet."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError:
            raise InputError("tokenizers: expected the package, found none; pip install tokenizers") from None
        if not path.is_file():
            raise InputError(
                f"{path}: expected the traces' tokenizer file, found none; name it with --tokenizer FILE "
                "(tokenizer.json or tokenizer.json.gz of Qwen2.5)"
            )
        text = read_text(path)
        try:
            self._json = json.loads(text)
            self._tokenizer = tokenizers.Tokenizer.from_str(text)
            self._tokenizer.encode_special_tokens = True
            self.contract = Contract.of(self._json, {})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: expected a Qwen2-style tokenizer.json, found {error!r}") from None
        self._pieces = {int(id): piece for piece, id in self._json["model"]["vocab"].items()}
        byte_of = _byte_alphabet()
        self._bytes = {id: bytes(byte_of[c] for c in piece) for id, piece in self._pieces.items()}

    def token_bytes(self, id: int) -> bytes:
        return self._bytes[id]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def piece(self, id: int) -> str:
        """A token in the byte-level alphabet: a leading space is "Ġ", a line end "Ċ"."""
        piece: str = self._pieces[id]
        return piece


def _byte_alphabet() -> dict[str, int]:
    """Byte by visible character, as byte-level BPE writes it."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + at): b for at, b in enumerate(others)}


def read_traces(path: Path) -> list[Trace]:
    """Every run of a JSONL file. Raises InputError naming the line that is not a run."""
    traces = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            traces.append(_trace(json.loads(line)))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}, line {number}: expected a trace (prompt, dream_output, gen_len, anchors by "
                f"fraction), found {type(error).__name__}: {error}"
            ) from None
    if not traces:
        raise InputError(f"{path}: expected at least one trace, found none")
    return traces


def _trace(row: dict[str, Any]) -> Trace:
    return Trace(
        prompt=str(row["prompt"]),
        output=str(row["dream_output"]),
        output_cut=bool(row["output_truncated"]),
        length=int(row["gen_len"]),
        anchors={
            str(fraction): tuple((int(p), int(t)) for p, t in pairs)
            for fraction, pairs in row["anchors"].items()
        },
        name=f"{row['benchmark']}/{row['index']}",
    )


def full_answer(trace: Trace, tokenizer: TraceTokenizer) -> list[int]:
    """Ids of the whole answer: the last fraction's anchors where all are there, else the output's text."""
    last = max(trace.anchors, key=float)
    if len(trace.anchors[last]) == trace.length:
        return [token for _, token in trace.anchors[last]]
    return tokenizer.encode(trace.output)
