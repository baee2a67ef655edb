"""`python -m lab.benches.rounding MODEL BUNDLE -o FOLDER`: how much of a graph's difference is rounding.

Responsible for the logits of the same texts in float64 and in float32, the latter by transformers, by the
bundle's fp32 graph, and by the same graph of standard operators, and for the differences between them. Where
all that compute in float32 are as far from float64 as each other, no operator of a graph loses precision. Not
responsible for the figures by which a conversion is judged (see `convert.check`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from common.cli import CommandParser, run_command
from common.progress import Bars, Progress
from convert.errors import OptionError
from convert.graph.calibration_texts import conversation_ids
from convert.graph.decoder import write_graph
from convert.graph.weights import Floating
from convert.source.checkpoint import Checkpoint
from convert.source.gguf import SUFFIX, GgufFile, unpack_gguf
from convert.source.original import load_original
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from lab.report import write_tables
from lab.store import Store
from lab.tables import Row, Table

TITLE = "Rounding of float32"
EXACT = "float64"
ORIGINAL, FUSED, PORTABLE = "transformers", "the graph", "the graph of standard operators"

Array = npt.NDArray[np.floating[Any]]
Way = Callable[[Sequence[int]], Array]
"""Logits [S, V] of a text of S ids."""


@contextmanager
def in_float64() -> Iterator[None]:
    """Where transformers computes in float32 whatever the weights' format, in norms, angles and softmax, it
    computes in float64.

    The frequencies of the rotary angles stay those of float32, as the model was trained with.
    """
    with (
        patch.object(torch, "float", torch.float64),
        patch.object(torch, "float32", torch.float64),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield


def of_transformers(model: Any) -> Way:
    """The logits of transformers' model in its own number format."""

    def logits(ids: Sequence[int]) -> Array:
        with torch.inference_mode():
            found: Array = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
        return found

    return logits


def of_engine(engine: Engine) -> Way:
    """The logits of a graph, each text in one pass."""

    def logits(ids: Sequence[int]) -> Array:
        engine.rewind(0)
        return np.array(engine.append(ids, range(len(ids))))  # its own array is the next text's too

    return logits


@dataclass
class Distance:
    """The differences of two ways' logits, text by text."""

    most: float = 0.0
    squares: float = 0.0
    count: int = 0

    def add(self, one: Array, other: Array) -> None:
        delta = np.abs(one.astype(np.float64) - other)
        self.most = max(self.most, float(delta.max()))
        self.squares += float(np.square(delta).sum())
        self.count += delta.size

    def row(self, one: str, other: str) -> Row:
        """The table's row."""
        mean = (self.squares / self.count) ** 0.5
        return {
            "in float32": one,
            "compared with": other,
            "largest difference": f"{self.most:.1e}",
            "root mean square": f"{mean:.1e}",
        }


def texts_of(bundle: Bundle, positions: int) -> list[list[int]]:
    """The built-in conversations in the model's own form, as many as give so many positions."""
    found: list[list[int]] = []
    for ids in conversation_ids(bundle.form):
        if sum(map(len, found)) >= positions:
            break
        found.append(ids)
    return found


def distances(
    texts: Sequence[Sequence[int]], ways: Mapping[str, Callable[[], Way]], progress: Progress
) -> tuple[list[Row], float]:
    """The rows of the table, and the largest logit.

    ways: by name, each opened when the one before it is done; the first, float64's, goes before all others.
    """
    pairs = [(name, EXACT) for name in ways if name != EXACT]
    pairs += [(FUSED, ORIGINAL)]
    found: dict[str, list[Array]] = {}
    for name, opened in ways.items():
        logits = opened()
        with progress.stage(name, len(texts)) as step:
            found[name] = []
            for ids in texts:
                found[name].append(logits(ids))
                step(1)
    rows = []
    for one, other in pairs:
        distance = Distance()
        for mine, theirs in zip(found[one], found[other], strict=True):
            distance.add(mine, theirs)
        rows.append(distance.row(one, other if other == EXACT else f"{other}, float32"))
    return rows, max(float(np.abs(each).max()) for each in found[EXACT])


def measured(model: Path, bundle: Bundle, positions: int, threads: int, progress: Progress) -> Table:
    """The table of a checkpoint folder or .gguf file and its bundle, which has a variant fp32."""
    torch.set_num_threads(threads)
    texts = texts_of(bundle, positions)
    with TemporaryDirectory() as work:
        folder = model
        if model.suffix.lower() == SUFFIX:
            folder = Path(work) / "checkpoint"
            unpack_gguf(GgufFile(model), folder)
        checkpoint = Checkpoint(folder)

        def exact() -> Way:
            logits = of_transformers(load_original(checkpoint).double())

            def wide(ids: Sequence[int]) -> Array:
                with in_float64():
                    return logits(ids)

            return wide

        def portable() -> Way:
            path, context = Path(work) / "model.onnx", bundle.manifest.context
            write_graph(checkpoint, path, Floating(), "portable", context)
            shape = bundle.manifest.model
            return of_engine(OrtEngine(path, shape, context=context, threads=threads))

        rows, largest = distances(
            texts,
            {
                EXACT: exact,
                ORIGINAL: lambda: of_transformers(load_original(checkpoint)),
                FUSED: lambda: of_engine(OrtEngine.open(bundle, threads=threads)),
                PORTABLE: portable,
            },
            progress,
        )
    count = sum(map(len, texts))
    note = f"{bundle.manifest.model.id}, {count} positions of {len(texts)} conversations; the largest logit "
    return Table.of("logits", TITLE, rows, f"{note}is {largest:.0f}.")


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="python -m lab.benches.rounding", description=__doc__)
    parser.add_argument("model", type=Path, help="checkpoint folder or .gguf file")
    parser.add_argument("bundle", type=Path, help="what was converted from it, with a variant fp32")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="for tables.json")
    parser.add_argument("--positions", type=int, default=512, help="at least (default: 512)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)

    def run() -> None:
        if args.positions < 1:
            raise OptionError(f"--positions: expected at least 1, found {args.positions}.")
        bundle = Bundle.open(args.bundle, "fp32")
        table = measured(args.model, bundle, args.positions, args.threads, Bars(passing=True))
        store = Store(args.out, {"bench": "rounding", "model": args.model.name})
        write_tables(store, TITLE, [f"python -m lab.benches.rounding: {table.note}"], [table])

    return run_command("rounding", run)


if __name__ == "__main__":
    sys.exit(main())
