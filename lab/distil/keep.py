"""Experiment `keep`: a taught model with a share of the weights that it had before.

On the line between both, an untaught model's other skills come back sooner than the taught one goes (WiSE-FT,
arXiv 2109.01903), and no training is needed to look. Responsible for these weights, and for one table over
the shares: long answers as in the curve of a run, and what short answers tell, by kind.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint
from cloud_anchor.model.row_weights import FILE, restored
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD, DenoiseConfig, commit_in_parallel
from cloud_anchor.sampling.sampler import denoise_stream
from common.cli import option
from lab.distil.curve import longest, point
from lab.experiment import About, Experiment, Models, Records, Setup
from lab.options import world_of
from lab.pairs.train import RECIPES
from lab.questions.items import load_items
from lab.questions.judge import graded
from lab.store import Record
from lab.tables import Row, Table

SHORT_CANVAS = 64
"""Of questions with short answers."""
QUESTIONS, BATCH = 280, 16


@dataclass(frozen=True)
class KeepOptions:
    """Raises RequestError for shares that there are not."""

    taught: str = option("runs/distil/testbed-dream", "the taught model", metavar="FOLDER")
    shares: tuple[float, ...] = option(
        (0.0, 0.25, 0.5, 0.75, 1.0), "of the untaught weights", float, metavar="S"
    )
    watched: int = option(12, "held-out questions with long answers")

    def __post_init__(self) -> None:
        if not self.shares or not all(0 <= share <= 1 for share in self.shares):
            raise RequestError(
                f"--shares: expected 0 to 1, found {' '.join(map(str, self.shares)) or 'none'}"
            )


def keep(untaught: Path, taught: Path, share: float) -> None:
    """Mix `share` of the weights of the checkpoint folder `untaught` into those of `taught`, in place."""
    before, after = (restored(load_file(folder / FILE)) for folder in (untaught, taught))
    mixed = {
        name: value.float().lerp(before[name].float(), share).to(value.dtype) for name, value in after.items()
    }
    save_file(mixed, taught / FILE, metadata={"format": "pt"})


def items(setup: Setup) -> list[str]:
    return [f"{share:g}" for share in setup.own.shares]


def measure(setup: Setup, items: Sequence[str]) -> Iterator[Record]:
    """One record a share; raises CheckpointError."""
    own: KeepOptions = setup.own
    options = setup.options
    untaught, taught = find_checkpoint(options.model), find_checkpoint(own.taught)
    pair = RECIPES[world_of(options.model)]()
    tokenizer = Tokenizer.from_file(str(untaught / "tokenizer.json"))
    long = longest(pair, own.watched, lambda text: len(tokenizer.encode(text).ids))
    asked = [
        item
        for item in load_items(options.sources, options.prompts or QUESTIONS, options.seed)
        if item.benchmark not in {each.benchmark for each in long}
    ]
    config = commit_in_parallel(DenoiseConfig(canvas=SHORT_CANVAS, total_steps=SHORT_CANVAS))
    for share in items:
        with TemporaryDirectory() as folder:
            mixed = Path(folder) / taught.name
            shutil.copytree(taught, mixed)
            keep(untaught, mixed, float(share))
            pipeline = Pipeline.open(str(mixed), dtype=options.dtype)
            prompts = [pipeline.model_form.ids(item.prompt) for item in asked]
            decode = pipeline.model_form.tokenizer.decode
            told: dict[str, list[float]] = {item.benchmark: [] for item in asked}
            for place, run in denoise_stream(pipeline.model, prompts, config, BATCH):
                told[asked[place].benchmark].append(graded(asked[place], decode(run.answer)))
            yield {
                "long": point(pipeline, long, PARALLEL_THRESHOLD),
                "short": {kind: sum(values) / len(values) for kind, values in told.items()},
            }


def tables(records: Records, about: About) -> list[Table]:
    rows: list[Row] = []
    for record in sorted(records, key=lambda each: float(each["id"])):
        row: Row = {"untaught": str(record["id"])}
        row |= {name: round(value, 3) for name, value in record["long"].items()}
        short = {f"short: {kind}": round(value, 3) for kind, value in record["short"].items()}
        if short:
            row["short"] = round(sum(record["short"].values()) / len(short), 3)
        rows.append(row | short)
    note = "Long answers as in the curve of a run. short: what short answers tell, the mean of the kinds."
    return [Table.of("shares", "By the share of the untaught weights", rows, note)]


EXPERIMENT = Experiment(
    "keep",
    "A taught model with a share of its untaught weights",
    measure,
    tables,
    options=KeepOptions,
    items=items,
    models=Models.NONE,
    together=1,
    defaults={"prompts": QUESTIONS, "dtype": "bfloat16"},
)
