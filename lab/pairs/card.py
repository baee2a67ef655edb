"""The model card of a pair: README.md beside its weights, with the plot of the losses and the training log.

Every figure is read from the run and its checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch

from cloud_anchor.errors import CheckpointError
from cloud_anchor.shipped import TAUGHT
from lab.pairs import shapes
from lab.pairs.pair import Pair
from lab.pairs.tokens import SPECIALS
from lab.pairs.trainer import plot
from lab.records import read_records

LOG = "training-log.json"
PLOT = "loss.png"
CURVE = "curve.jsonl"

CARD, CURVE_TEXT = Path(__file__).with_name("card.txt").read_text("utf-8").split("-----\n")
"""The card, and what it says of a taught model, with slots."""


def logs_of(pair: Pair, weights: Path, run: Path, taught: Path | None) -> dict[str, pd.DataFrame]:
    """By model the log of its training, and the curve of the taught model where one ships.

    taught: folder of a run of `lab distil`; all other logs are then those of the card that ships, else those
    of the run. Raises CheckpointError.
    """
    file = weights / LOG
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if taught:
        logs = {name: pd.DataFrame(kept[name]["log"]) for name in pair.recipes}
        return logs | {CURVE: _log(taught / CURVE, 1)}
    logs = {name: _log(run / f"{name}.jsonl", recipe.steps) for name, recipe in pair.recipes.items()}
    return logs | ({CURVE: pd.DataFrame(kept[CURVE])} if CURVE in kept else {})


def _log(file: Path, steps: int) -> pd.DataFrame:
    """The records of a run; raises CheckpointError where it has not come to so many steps."""
    rows = read_records(file)
    step = rows[-1]["step"] if rows else None
    if step is None or step < steps:
        raise CheckpointError(
            f"{file}: expected the log of a run of {steps} steps, found {step}. Let the training command "
            "finish it."
        )
    return pd.DataFrame(rows)


def write(pair: Pair, logs: Mapping[str, pd.DataFrame], weights: Path) -> None:
    """Write the card, the plot and the log into the folder of the shipped weights."""
    models = {name: logs[name] for name in pair.recipes}
    kept: dict[str, object] = {name: {"log": log.to_dict("list")} for name, log in models.items()}
    curve = ""
    if CURVE in logs:
        kept[CURVE] = logs[CURVE].to_dict("list")
        curve = CURVE_TEXT.format(
            taught=TAUGHT.format(pair.name), student=pair.student, curve=logs[CURVE].to_markdown(index=False)
        )
    (weights / LOG).write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
    plot(models, weights / PLOT)
    sizes = {path.parent.name: path.stat().st_size / 1e6 for path in sorted(weights.rglob("*.safetensors"))}
    text = CARD.format(
        names=", ".join(sizes),
        pair=pair.name,
        about=pair.about,
        models=pd.DataFrame(
            {name: _properties(pair, name, log) for name, log in models.items()}
        ).to_markdown(),
        specials=len(SPECIALS),
        sizes=", ".join(f"{name} {size:.1f}" for name, size in sizes.items()),
        edge=pair.edge,
        plot=PLOT,
        curve=curve,
        sources="\n".join(pair.sources()),
    )
    (weights / "README.md").write_text(text, encoding="utf-8")


def _properties(pair: Pair, name: str, log: pd.DataFrame) -> dict[str, str]:
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
        "last loss, nats a token": f"{log['loss'].iloc[-1]:.3f}",
        "seconds": f"{log['seconds'].iloc[-1]:,.0f}",
    }
