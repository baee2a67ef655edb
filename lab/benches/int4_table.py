"""python -m lab.benches.int4_table MODEL FOLDER: four-bit formats of one model, by quality and by speed.

Writes the model's graph with several ways to store weights in 4 bits, quantised by ONNX Runtime's quantiser
where that has the method (needs onnx-ir), and the same weights as llama.cpp's quantiser stores them (needs
llama-cpp-python). Prints of each its bytes, its perplexity on a text that no calibration has seen, KL
divergence and top-1 agreement with float32 there, and the share of a greedy answer before it differs. With
--speed it prints milliseconds instead: all in one process, one repetition of each in turn. Its tables stay
in FOLDER, for `python -m lab publish --take FOLDER`.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common.cli import CommandParser, run_command
from common.files import write_whole
from common.progress import Bars
from convert.check.prompts import DEFAULT_PROMPTS
from convert.check.verify import agree, divergence
from convert.conversion import bundle_shape
from convert.errors import OptionError
from convert.graph.calibrated import by_gptq
from convert.graph.calibration_texts import conversation_ids, text_pieces
from convert.graph.decoder import DATA_SUFFIX, write_graph
from convert.graph.moments import InputMoments
from convert.graph.weights import Blockwise
from convert.source.checkpoint import Checkpoint, FloatArray
from convert.source.gguf import SUFFIX, GgufFile, unpack_gguf
from convert.source.tokenizer import Identity, read_identity
from edge_runtime.bench.llama_cpp import LlamaEngine, library
from edge_runtime.bench.measure import DECODED, Bench, Trial, repetitions
from edge_runtime.bundle.bundle import ModelShape
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.system import resident_memory
from lab.benches.int4_formats import REFERENCE, KeptBlocks, contributions, dequantized, formats
from lab.benches.write_gguf import write_gguf
from lab.report import machine, print_tables
from lab.store import TABLES
from lab.tables import Row, Table

CONTEXT = 1024
ROWS = 64
ANSWER = 24
DEPTHS = (0, 128, 512)
PROMPT, CHUNK = 256, 64
PROBED = 128
"""Ids of the calibration on which the matrices' sensitivity is measured."""

ITSELF = "llama.cpp, the file itself"
LLAMA = ("llama.cpp Q4_0, table Q4_0", "llama.cpp Q4_0", "llama.cpp Q4_K_M", ITSELF)
"""llama.cpp's own choice for embedding and head is 8 bits where a row does not divide into blocks of 256."""


@dataclass
class FormatQuality:
    """Quality of one row on the text, and of its answers."""

    nats: float = 0.0
    kl: float = 0.0
    same: float = 0.0
    answers: float = 0.0


class FormatTable:
    """The files of one model's table in a folder; what is there is not made again."""

    def __init__(self, model: Path, folder: Path, calibration: Path | None, threads: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if model.suffix.lower() == SUFFIX:
            source = folder / "checkpoint"
            if not (source / "config.json").is_file():
                unpack_gguf(GgufFile(model), source, None, lambda parameters: None)
        else:
            source = model
        self.model, self.folder, self.threads = model, folder, threads
        self.checkpoint = Checkpoint(source)
        self.shape: ModelShape = bundle_shape(self.checkpoint.shape, source.name, "")
        self.calibration = calibration
        self.blocks = KeptBlocks(self.moments)
        self.formats = formats(self.blocks.quantizer, self.sensitive)

    @cached_property
    def identity(self) -> Identity:
        return read_identity(self.checkpoint, DEFAULT_PROMPTS)

    def moments(self) -> InputMoments:
        """The moments on the calibration: the file's text, or what a conversion has for one."""
        return InputMoments(self.checkpoint, self.texts())

    def texts(self) -> list[list[int]]:
        if self.calibration is None:
            return conversation_ids(self.identity)
        return self.pieces(self.calibration, 2048)

    def sensitive(self, share: float) -> list[str]:
        """The matrices that contribute most to the divergence, by weight: so many that they hold a share of
        the layers' weights. They are measured once, in 4 bits by GPTQ, on the start of the calibration.
        """
        path = self.folder / "sensitivity.json"
        if not path.is_file():
            quantize = by_gptq(self.moments())  # of transformers' weights; the graph scales its queries

            def stored(name: str, weight: FloatArray) -> FloatArray:
                block = Blockwise(4, 128).block_of(weight.shape[1])
                return dequantized(quantize(name, weight, block), weight.shape[1])

            ids = [id_ for text in self.texts() for id_ in text][:PROBED]
            found = [list(each) for each in contributions(self.checkpoint, ids, stored)]
            write_whole(path, json.dumps(found, indent=0).encode())
        matrices = json.loads(path.read_bytes())
        room = share * sum(size for _, size, _ in matrices)
        chosen = []
        for name, size, _ in sorted(matrices, key=lambda each: -each[2] / each[1]):
            if size <= room:
                chosen.append(name)
                room -= size
        return chosen

    def pieces(self, text: Path, most: int) -> list[list[int]]:
        """The first `most` ids of a text, in pieces."""
        return text_pieces(self.identity, text.read_text(encoding="utf-8"), most)

    def path(self, name: str) -> Path:
        return self.folder / name.replace(", ", "-").replace(" ", "-").replace("/", "-")

    def engine(self, name: str) -> Engine:
        """A row's engine; its files are made where they are missing."""
        if name in LLAMA:
            path = self._gguf(name)
            return LlamaEngine(path, self.shape.vocab_size, context=CONTEXT, threads=self.threads)
        return OrtEngine(self.graph(name), self.shape, context=CONTEXT, threads=self.threads)

    def graph(self, name: str) -> Path:
        """The graph of a row of ONNX Runtime; it is made where it is missing."""
        path = self.path(name) / "model.onnx"
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            part = path.with_name("part.onnx")
            write_graph(self.checkpoint, part, self.formats[name](), "fused", CONTEXT)
            part.with_name(part.name + DATA_SUFFIX).replace(path.with_name(part.name + DATA_SUFFIX))
            part.replace(path)
        return path

    def _gguf(self, name: str) -> Path:
        path = self.model if name == ITSELF else self.path(name + SUFFIX)
        if path.is_file():
            return path
        llama_cpp = library()

        plain = self.folder / f"f32{SUFFIX}"
        if not plain.is_file():
            write_gguf(self.checkpoint.folder, plain, "f32", "f32")
        options = llama_cpp.llama_model_quantize_default_params()
        kind = "Q4_K_M" if "Q4_K_M" in name else "Q4_0"
        options.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
        options.nthread = self.threads
        options.pure = name.endswith("table Q4_0")
        if llama_cpp.llama_model_quantize(str(plain).encode(), str(path).encode(), ctypes.byref(options)):
            raise OptionError(f"{path}: llama.cpp cannot write it.")
        return path

    def bytes(self, name: str) -> int:
        """Bytes of a row's weights on disk."""
        if name in LLAMA:
            return self._gguf(name).stat().st_size
        return sum(path.stat().st_size for path in self.graph(name).parent.iterdir())


def judge(
    table: FormatTable, names: Sequence[str], text: Path, positions: int
) -> Iterator[tuple[str, FormatQuality]]:
    """The quality of each row; the first is float32's own."""
    pieces = table.pieces(text, positions)
    count = sum(len(piece) - 1 for piece in pieces)
    expected: list[npt.NDArray[np.float32]] = []
    answers: list[list[int]] = []
    prompts = [table.identity.ids(prompt) for prompt in DEFAULT_PROMPTS]
    for name in (REFERENCE, *names):
        engine, found = table.engine(name), FormatQuality()
        chunks = (logits for piece in pieces for logits in teacher_forced(engine, piece))
        for index, (rows, after) in enumerate(chunks):
            if name == REFERENCE:
                expected.append(rows)
            top = rows.max(-1, keepdims=True)
            norm = top[:, 0] + np.log(np.exp(rows - top).sum(-1))
            found.nats += float((norm - rows[np.arange(len(after)), after]).sum())
            found.kl += float(divergence(expected[index], rows).sum())
            found.same += float(agree(expected[index], rows).sum())
        for number, prompt in enumerate(prompts):
            said = greedy(engine, prompt)
            if name == REFERENCE:
                answers.append(said)
            parts = (a != b for a, b in zip(said, answers[number], strict=True))
            found.answers += list(accumulate(parts, max)).count(False) / ANSWER / len(prompts)
        found.nats, found.kl, found.same = found.nats / count, found.kl / count, found.same / count
        yield name, found


def teacher_forced(
    engine: Engine, ids: Sequence[int]
) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    """Logits [N, V] and the ids [N] that they predict, chunk by chunk; the last id predicts none."""
    engine.rewind(0)
    for start in range(0, len(ids) - 1, ROWS):
        chunk = ids[start : min(start + ROWS, len(ids) - 1)]
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


def speed(table: FormatTable, names: Sequence[str], repeat: int, clock: Callable[[], float]) -> list[Row]:
    """Milliseconds of a prompt, of a token by depth and of a chunk: the median of the repetitions, the least
    and the most; and the ratio of a token's medians to the last row's. One repetition of each engine in turn.
    """
    contract = table.identity.contract
    benches = [Bench(name, table.engine(name), contract) for name in names]
    result: list[Row] = [{"format": name, "MB": table.bytes(name) / 1e6} for name in names]
    kinds: dict[str, Callable[[Bench], Trial]] = {
        f"prompt of {PROMPT}": lambda bench: bench.prefill(PROMPT),
        **{f"token at {depth}": partial(Bench.decode, depth=depth) for depth in DEPTHS},
        f"chunk of {CHUNK}": lambda bench: bench.chunk(CHUNK, CHUNK, scored=False),
    }
    for kind, test in kinds.items():
        each = DECODED if kind.startswith("token") else 1
        found = repetitions([test(bench) for bench in benches], repeat, clock)
        times = [[1e3 * seconds / each for seconds in kept] for kept in found]
        base = statistics.median(times[-1])
        for row, kept in zip(result, times, strict=True):
            median = statistics.median(kept)
            row[kind] = f"{median:.1f} ({min(kept):.1f} to {max(kept):.1f})"
            if each > 1:
                row[f"ratio at {kind.split()[-1]}"] = round(median / base, 3)
    return result


def memory(table: FormatTable, names: Sequence[str]) -> list[Row]:
    """MB resident after a prompt and a token at the greatest depth, each row in a process of its own."""
    result: list[Row] = []
    for name in names:
        table.bytes(name)  # made before
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            sizes = pool.submit(_resident, table.model, table.folder, table.threads, name).result()
        row: Row = {"format": name, "resident MB": round(sum(sizes.values()) / 1e6)}
        result.append(row | {f"{kind} MB": round(size / 1e6) for kind, size in sizes.items()})
    return result


def _resident(model: Path, folder: Path, threads: int, name: str) -> dict[str, int]:
    table = FormatTable(model, folder, None, threads)
    before = resident_memory()
    bench = Bench(name, table.engine(name), table.identity.contract)
    for trial in (bench.prefill(PROMPT), bench.decode(max(DEPTHS))):
        trial.prepare()
        trial.run()
    return {kind: size - before[kind] for kind, size in resident_memory().items()}


def keep(table: FormatTable, name: str, title: str, rows: Sequence[Row]) -> None:
    """Prints a table, and writes it beside those that the folder has already."""
    found = Table.of(name, title, rows)
    path = table.folder / TABLES
    data: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {"tables": {}}
    data["title"] = f"Four-bit formats of {table.model.stem}"
    data["description"] = [f"Machine: {machine()}."]
    data["tables"][name] = found.to_json()
    write_whole(path, json.dumps(data, indent=1).encode())
    print_tables([found])


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.int4_table",
        description=__doc__,
        epilog="examples:\n"
        "  python -m lab.benches.int4_table smollm2.gguf runs/int4 --text unseen.txt --calibration seen.txt\n"
        "  python -m lab.benches.int4_table smollm2.gguf runs/int4 --speed \\\n"
        "      --rows 'symmetric 32; llama.cpp Q4_0'",
    )
    parser.add_argument("model", type=Path, help="checkpoint folder or .gguf file")
    parser.add_argument("folder", type=Path, help="where the files of the rows go; they are kept")
    parser.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 text, not that of the calibration")
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="text for GPTQ (default: convert's own)"
    )
    parser.add_argument("--positions", type=int, default=1024, help="ids of the text (default: 1024)")
    parser.add_argument("--rows", help="some of the table, separated by semicolons (default: all)")
    parser.add_argument(
        "--speed",
        action="store_true",
        help="time the rows instead: elapsed time, or with --threads 1 the processor's",
    )
    parser.add_argument("--memory", action="store_true", help="what the rows take in memory instead")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions of the timing (default: 7)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)

    def run() -> None:
        table = FormatTable(args.model, args.folder, args.calibration, args.threads)
        known = [*table.formats, *LLAMA]
        names = [name for name in known if name != REFERENCE]
        if args.rows:
            names = [name.strip() for name in args.rows.split(";")]
        if unknown := [name for name in names if name not in known]:
            raise OptionError(f"--rows: expected some of {'; '.join(known)}, found {unknown[0]!r}.")
        if args.speed:
            clock = time.process_time if args.threads == 1 else time.perf_counter
            keep(table, "speed", "Milliseconds", speed(table, names, args.repeat, clock))
            return
        if args.memory:
            keep(table, "memory", "Memory", memory(table, names))
            return
        if args.text is None:
            raise OptionError("--text: expected a file whose perplexity is measured, found none.")
        rows: list[Row] = []
        with Bars(passing=True).stage("formats", len(names) + 1) as step:
            for name, found in judge(table, names, args.text, args.positions):
                row: Row = {"format": name, "MB": round(table.bytes(name) / 1e6, 1)}
                row |= {"perplexity": round(float(np.exp(found.nats)), 2), "mean KL": round(found.kl, 4)}
                rows.append(row | {"top-1": round(found.same, 3), "answers": round(found.answers, 2)})
                print("| " + " | ".join(map(str, rows[-1].values())) + " |", file=sys.stderr, flush=True)
                step(1)
        keep(table, "quality", "Quality on a text that no calibration has seen", rows)

    return run_command("int4_table", run)


if __name__ == "__main__":
    sys.exit(main())
