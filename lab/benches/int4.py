"""Four-bit formats of one model, by quality and by speed: `python -m lab run int4 --checkpoint MODEL`.

Writes the model's graph with several ways to store weights in 4 bits, and the same weights as llama.cpp's
quantiser stores them (needs llama-cpp-python). With `--text` each row has its bytes, its perplexity on a text
that no calibration has seen, KL divergence and top-1 agreement with float32 there, and the share of a greedy
answer before it differs; with `--repeat` its milliseconds, all in one process, one repetition of each in
turn. The files stay in the results folder. Not responsible for formats (see `convert.graph`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.cli import option
from convert.check.prompts import DEFAULT_PROMPTS
from convert.check.verify import agree, divergence
from convert.conversion import bundle_shape
from convert.errors import OptionError
from convert.graph.calibrated import by_gptq
from convert.graph.calibration_texts import conversation_ids
from convert.graph.decoder import write_graph
from convert.graph.moments import InputMoments
from convert.graph.nodes import GraphWriter
from convert.graph.weights import Blockwise, Floating, WeightFormat
from convert.source.checkpoint import Checkpoint, FloatArray
from convert.source.gguf import GgufFile, unpack_gguf
from convert.source.tokenizer import Identity, read_identity
from edge_runtime.bench.llama_cpp import LlamaEngine
from edge_runtime.bench.measure import DECODED, Bench, Trial, repetitions
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.text.gguf import SUFFIX
from lab.benches.write_gguf import quantise_file, write_gguf
from lab.experiment import About, Experiment, Records, Setup
from lab.store import Record
from lab.tables import Row, Table

REFERENCE = "fp32"
ITSELF = "llama.cpp, the file itself"
LLAMA = ("llama.cpp Q4_0, table Q4_0", "llama.cpp Q4_0", "llama.cpp Q4_K_M", ITSELF)
"""llama.cpp's own choice for embedding and head is 8 bits where a row does not divide into blocks of 256."""

TABLES = {"": None, ", table 32": Blockwise(4, 32), ", table int8": Blockwise(8)}
"""What embedding and head (the table) have beside the layers' blocks."""

ROWS = (
    "int8 32",
    *(f"{by} {block}{table}" for by in ("symmetric", "gptq") for block in (32, 64, 128) for table in TABLES),
)

CONTEXT = 1024
PIECE = 256
CHUNK = 64
ANSWER = 24
TRIALS: dict[str, Callable[[Bench], Trial]] = {
    "prompt of 256": lambda bench: bench.prefill(256),
    **{f"token at {depth}": partial(Bench.decode, depth=depth) for depth in (0, 128, 512)},
    f"chunk of {CHUNK}": lambda bench: bench.chunk(CHUNK, CHUNK, scored=False),
}


@dataclass(frozen=True)
class WithTable(Blockwise):
    """Blocks with another format for embedding and head; None: the same."""

    table: Blockwise | None = None

    def embedding(self, graph: GraphWriter, ids: str, weight: FloatArray) -> str:
        own = self.table.embedding if self.table else super().embedding
        return own(graph, ids, weight)

    def head(self, graph: GraphWriter, x: str, shape: tuple[int, int], weight: FloatArray | None) -> str:
        own = self.table.head if self.table else super().head
        return own(graph, x, shape, weight)


@dataclass(frozen=True)
class Int4Options:
    checkpoint: str | None = option(None, "checkpoint folder or .gguf file", metavar="MODEL")
    text: str | None = option(None, "UTF-8 text for the quality, not that of the calibration", metavar="FILE")
    calibration: str | None = option(None, "text for GPTQ (default: convert's own)", metavar="FILE")
    positions: int = option(1024, "ids of the text")
    rows: tuple[str, ...] = option((), "some of the table, each in quotes (default: all)", metavar="ROW")
    repeat: int = option(0, "repetitions of the timing: elapsed time, or with --threads 1 the processor's")


class Formats:
    """One model's files in a folder, by row; what is there is not made again."""

    def __init__(self, folder: Path, own: Int4Options, threads: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.model, self.folder, self.own, self.threads = Path(str(own.checkpoint)), folder, own, threads
        source = self.model
        if source.suffix.lower() == SUFFIX:
            source = folder / "checkpoint"
            if not (source / "config.json").is_file():
                unpack_gguf(GgufFile(self.model), source, None, lambda parameters: None)
        self.checkpoint = Checkpoint(source)
        self.shape = bundle_shape(self.checkpoint.shape, source.name, "")

    @cached_property
    def identity(self) -> Identity:
        return read_identity(self.checkpoint, DEFAULT_PROMPTS)

    def pieces(self, text: str, most: int) -> list[list[int]]:
        """The first `most` ids of a text file, in pieces."""
        ids = self.identity.tokenizer.encode(Path(text).read_text(encoding="utf-8"))[:most]
        return [ids[start : start + PIECE] for start in range(0, len(ids) - 1, PIECE)]

    def moments(self) -> InputMoments:
        """The moments on the calibration: the file's text, or what a conversion has for one."""
        text = self.own.calibration
        return InputMoments(
            self.checkpoint, self.pieces(text, 2048) if text else conversation_ids(self.identity)
        )

    def format(self, name: str) -> WeightFormat:
        """The format of a row of ONNX Runtime."""
        if name == REFERENCE:
            return Floating()
        layers = name.partition(",")[0]
        method, size = layers.split()
        if method == "int8":
            return Blockwise(8, int(size))
        quantizer = by_gptq(self.moments()) if method == "gptq" else None
        return WithTable(4, int(size), layers=quantizer, table=TABLES[name.removeprefix(layers)])

    def path(self, name: str) -> Path:
        """A row's file, made where it is missing."""
        path = self.folder / name.replace(", ", "-").replace(" ", "-")
        if name == ITSELF:
            return self.model
        if name in LLAMA:
            return self._gguf(name, path.with_name(path.name + SUFFIX))
        path /= "model.onnx"
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            part = path.with_name("part.onnx")
            write_graph(self.checkpoint, part, self.format(name), "fused", CONTEXT)
            part.replace(path)
        return path

    def _gguf(self, name: str, path: Path) -> Path:
        if path.is_file():
            return path
        plain = self.folder / f"f32{SUFFIX}"
        if not plain.is_file():
            write_gguf(self.checkpoint.folder, plain, "f32", "f32")
        kind, pure = "Q4_K_M" if "Q4_K_M" in name else "Q4_0", name.endswith("table Q4_0")
        quantise_file(plain, path, kind, threads=self.threads, pure=pure)
        return path

    def engine(self, name: str) -> Engine:
        path = self.path(name)
        if name in LLAMA:
            return LlamaEngine(path, self.shape.vocab_size, context=CONTEXT, threads=self.threads)
        return OrtEngine(path, self.shape, context=CONTEXT, threads=self.threads)

    def megabytes(self, name: str) -> float:
        """Size of a row's weights on disk."""
        path = self.path(name)
        files = [path] if name in LLAMA else path.parent.iterdir()
        return sum(file.stat().st_size for file in files) / 1e6


def quality(formats: Formats, names: Sequence[str]) -> Iterator[Record]:
    """Each row on the text and by its answers; the first is float32, with which the others are compared."""
    pieces = formats.pieces(str(formats.own.text), formats.own.positions)
    count = sum(len(piece) - 1 for piece in pieces)
    expected: list[npt.NDArray[np.float32]] = []
    answers: list[list[int]] = []
    for name in names:
        engine = formats.engine(name)
        found = dict.fromkeys(("nats", "kl", "same", "answers"), 0.0)
        for index, (rows, after) in enumerate(
            each for piece in pieces for each in teacher_forced(engine, piece)
        ):
            if name == REFERENCE:
                expected.append(rows)
            top = rows.max(-1, keepdims=True)
            norm = top[:, 0] + np.log(np.exp(rows - top).sum(-1))
            found["nats"] += float((norm - rows[np.arange(len(after)), after]).sum()) / count
            found["kl"] += float(divergence(expected[index], rows).sum()) / count
            found["same"] += float(agree(expected[index], rows).sum()) / count
        for number, prompt in enumerate(DEFAULT_PROMPTS):
            said = greedy(engine, formats.identity.ids(prompt))
            if name == REFERENCE:
                answers.append(said)
            parts = (a != b for a, b in zip(said, answers[number], strict=True))
            found["answers"] += list(accumulate(parts, max)).count(False) / ANSWER / len(DEFAULT_PROMPTS)
        yield dict(found)


def teacher_forced(
    engine: Engine, ids: Sequence[int]
) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    """Logits [N, V] and the ids [N] that they predict, chunk by chunk; the last id predicts none."""
    engine.rewind(0)
    for start in range(0, len(ids) - 1, CHUNK):
        chunk = ids[start : min(start + CHUNK, len(ids) - 1)]
        logits = np.array(engine.append(chunk, range(len(chunk))))
        yield logits, np.array(ids[start + 1 : start + 1 + len(chunk)])


def greedy(engine: Engine, prompt: Sequence[int]) -> list[int]:
    """The first ids of an engine's greedy answer, end markers or not."""
    engine.rewind(0)
    logits = engine.append(prompt, [len(prompt) - 1])
    said: list[int] = []
    while len(said) < ANSWER:
        said.append(int(np.asarray(logits)[0].argmax()))
        logits = engine.append(said[-1:], [0])
    return said


def speed(formats: Formats, names: Sequence[str], repeat: int) -> list[Record]:
    """Milliseconds of each repetition: of a prompt, of a token by depth and of a chunk."""
    clock = time.process_time if formats.threads == 1 else time.perf_counter
    benches = [Bench(name, formats.engine(name), formats.identity.contract) for name in names]
    result: list[Record] = [{} for _ in names]
    for kind, test in TRIALS.items():
        each = DECODED if kind.startswith("token") else 1
        for record, kept in zip(
            result, repetitions([test(bench) for bench in benches], repeat, clock), strict=True
        ):
            record[kind] = [1e3 * seconds / each for seconds in kept]
    return result


def rows(setup: Setup) -> list[str]:
    """The rows, float32 first; raises OptionError."""
    own = setup.own
    known = [*ROWS, *LLAMA]
    if own.checkpoint is None or not (own.text or own.repeat):
        raise OptionError("--checkpoint: expected a model, and --text FILE or --repeat N beside it.")
    if unknown := [name for name in own.rows if name not in known]:
        raise OptionError(f"--rows: expected some of {'; '.join(known)}, found {unknown[0]!r}.")
    return [REFERENCE, *(own.rows or known)]


def measure(setup: Setup, names: Sequence[str]) -> Iterator[Record]:
    formats = Formats(setup.options.output / "formats", setup.own, setup.options.threads or 2)
    # All rows before the first is kept: each is compared with float32 and timed in turn with the others.
    judged = list(quality(formats, names)) if setup.own.text else [{} for _ in names]
    timed = speed(formats, names[1:], setup.own.repeat) if setup.own.repeat else [{} for _ in names[1:]]
    for name, found, times in zip(names, judged, [{}, *timed], strict=True):
        yield {"MB": formats.megabytes(name), **found, **times}


def tables(records: Records, about: About) -> list[Table]:
    good: list[Row] = [
        {
            "format": each["id"],
            "MB": round(each["MB"], 1),
            "perplexity": round(float(np.exp(each["nats"])), 2),
        }
        | {"mean KL": round(each["kl"], 4), "top-1": round(each["same"], 3)}
        | {"answers": round(each["answers"], 2)}
        for each in records
        if "kl" in each
    ]
    timed = [each for each in records if "chunk of 64" in each]
    fast = [_times(each, timed[-1]) for each in timed]
    title = "Quality on a text that no calibration has seen"
    return [Table.of("quality", title, good), Table.of("speed", "Milliseconds", fast)]


def _times(record: Record, last: Record) -> Row:
    """Medians, the least and the most in brackets; of a token the ratio to the last row's."""
    row: Row = {"format": record["id"], "MB": record["MB"]}
    for kind in TRIALS:
        median = statistics.median(record[kind])
        row[kind] = f"{median:.1f} ({min(record[kind]):.1f} to {max(record[kind]):.1f})"
        if kind.startswith("token"):
            row[f"ratio at {kind.split()[-1]}"] = round(median / statistics.median(last[kind]), 3)
    return row


EXPERIMENT = Experiment(
    "int4",
    "Four-bit formats of one model",
    measure,
    tables,
    options=Int4Options,
    items=rows,
    opens=False,
    together=len(ROWS) + len(LLAMA) + 1,
)
