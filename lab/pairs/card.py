"""The model card of a pair: README.md beside its weights, with the plot of the losses and the training log.

Every figure is read from the run and its checkpoints. Responsible for the card's content and files. Not
responsible for the weights beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch

from cloud_anchor.errors import CheckpointError
from cloud_anchor.shipped import TAUGHT
from common.files import read_records
from lab.pairs import shapes
from lab.pairs.pair import Pair
from lab.pairs.tokens import SPECIALS
from lab.pairs.trainer import plot

LOG = "training-log.json"
PLOT = "loss.png"
CURVE = "curve.jsonl"

Columns = dict[str, list[Any]]


def check_finished(run: Path, name: str, steps: int) -> None:
    """Raises CheckpointError where the run has no such model, or has not trained it for so many steps."""
    file = run / f"{name}.pt"
    if not file.is_file():
        raise CheckpointError(f"{file}: expected a file of a training run, found none")
    step = int(torch.load(file, map_location="cpu", weights_only=True, mmap=True)["step"])
    if step < steps:
        raise CheckpointError(
            f"{file}: expected a finished run of {steps} steps, found step {step}. Let the training command "
            "finish it."
        )


def logs_of(pair: Pair, weights: Path, run: Path, taught: Path | None) -> dict[str, Columns]:
    """By model the log of its training, and the curve of the taught model where one ships.

    taught: folder of a run of `lab distil`; all other logs are then those of the card that ships, else those
    of the run. Raises CheckpointError.
    """
    file = weights / LOG
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    curve = {CURVE: kept[CURVE]} if CURVE in kept else {}
    if taught:
        return {name: kept[name]["log"] for name in pair.recipes} | {CURVE: _columns(taught / CURVE)}
    for name, recipe in pair.recipes.items():
        check_finished(run, name, recipe.steps)
    return {name: _columns(run / f"{name}.jsonl") for name in pair.recipes} | curve


def _columns(file: Path) -> Columns:
    """The records of a file as columns; raises CheckpointError where there are none."""
    rows = read_records(file)
    if not rows:
        raise CheckpointError(f"{file}: expected a file of a training run, found none")
    found: Columns = pd.DataFrame(rows).to_dict("list")
    return found


def write(pair: Pair, logs: Mapping[str, Columns], weights: Path) -> None:
    """Write the card, the plot and the log into the folder of the shipped weights."""
    models = {name: log for name, log in logs.items() if name != CURVE}
    kept = {name: {"log": log} for name, log in models.items()}
    text = json.dumps(kept | {CURVE: logs[CURVE]} if CURVE in logs else kept, separators=(",", ":"))
    (weights / LOG).write_text(text + "\n", encoding="utf-8")
    with TemporaryDirectory() as made:
        files = [Path(made) / f"{name}.jsonl" for name in models]
        for log, file in zip(models.values(), files, strict=True):
            pd.DataFrame(log).to_json(file, orient="records", lines=True)
        plot(files, weights / PLOT)
    (weights / "README.md").write_text("\n".join(lines(pair, logs, weights)) + "\n", encoding="utf-8")


def lines(pair: Pair, logs: Mapping[str, Columns], weights: Path) -> Iterator[str]:
    """The card, line by line."""
    sizes = {path.parent.name: path.stat().st_size for path in sorted(weights.rglob("*.safetensors"))}
    models = pd.DataFrame({name: properties(pair, name, logs[name]) for name in pair.recipes})
    yield from (
        f"# Model card: {', '.join(sizes)}",
        "",
        f"Made by `python -m lab.pairs.ship {pair.name}` from a run of `python -m lab.pairs.train "
        f"{pair.name}`, from scratch. {pair.about}",
        "",
        models.to_markdown(),
        "",
        f"Tokens include padding. The vocabulary ends with {len(SPECIALS)} special tokens. Megabytes of "
        f"weights: {', '.join(f'{name} {size / 1e6:.1f}' for name, size in sizes.items())}. The edge model's "
        f"bundle is `edge_runtime/bundles/{pair.edge}`.",
        "",
        f"![loss]({PLOT})",
    )
    if CURVE in logs:
        yield from (
            "",
            f"{TAUGHT.format(pair.name)} is {pair.student}, taught to answer in few passes (`lab/distil/`). "
            "By steps, on held-out questions with long answers, each against its own finished run:",
            "",
            pd.DataFrame(logs[CURVE]).to_markdown(index=False),
        )
    yield from ("", "## Sources", "", *pair.sources())


def properties(pair: Pair, name: str, log: Columns) -> dict[str, str]:
    """What the card tells of a model."""
    recipe, shape = pair.recipes[name], pair.shapes[name]
    with torch.device("meta"):
        parameters = shapes.parameters(shapes.build(shape))
    masked = recipe.steps - recipe.causal_steps
    return {
        "parameters": f"{parameters / 1e6:.2f} million",
        "shape": f"{shape['num_hidden_layers']} layers of {shape['hidden_size']}",
        "causal steps": f"{recipe.causal_steps:,} of {recipe.causal_tokens:,} tokens",
        "masked steps": f"{masked:,} of {recipe.masked_tokens:,} tokens" if masked else "none",
        "last loss, nats a token": f"{log['loss'][-1]:.3f}",
        "seconds": f"{log['seconds'][-1]:,.0f}",
    }
