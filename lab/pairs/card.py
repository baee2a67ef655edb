"""The model card of a pair: README.md beside its weights, with the plot of the losses and the training log.

Every figure is read from the run, its checkpoints or the measurement's JSON. Responsible for the card's
content and files. Not responsible for the weights beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import torch

from cloud_anchor.errors import CheckpointError
from lab.pairs import shapes
from lab.pairs.pair import Pair, TrainingRecipe
from lab.pairs.tokens import SPECIALS
from lab.pairs.trainer import plot

LOG = "training-log.json"
PLOT = "loss.png"


@dataclass(frozen=True)
class Trained:
    """One model of a finished run.

    log: the loop's records, one of ten steps. evaluations: right answers by kind, at some steps.
    """

    name: str
    recipe: TrainingRecipe
    log_file: Path
    log: Sequence[dict[str, float]]
    evaluations: Sequence[dict[str, float]]

    @classmethod
    def read(cls, run: Path, name: str) -> Trained:
        """Raises CheckpointError where the run has no such model, or has not finished it."""
        file, log = run / f"{name}.pt", run / f"{name}.jsonl"
        for path in (file, log):
            if not path.is_file():
                raise CheckpointError(f"{path}: expected a file of a training run, found none")
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        recipe = TrainingRecipe(**state["recipe"])
        if int(state["step"]) < recipe.steps:
            raise CheckpointError(
                f"{file}: expected a finished run of {recipe.steps} steps, found step {state['step']}. Let "
                "the training command finish it."
            )
        return cls(name, recipe, log, _lines(log), _lines(run / f"{name}.evaluations.jsonl"))

    @property
    def seconds(self) -> float:
        return self.log[-1]["seconds"] if self.log else 0.0

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of the causal and of the masked stage, padding included."""
        recipe = self.recipe
        masked = (recipe.steps - recipe.causal_steps) * recipe.masked_tokens
        return recipe.causal_steps * recipe.causal_tokens, masked


def _lines(file: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


@dataclass(frozen=True)
class Card:
    """What a card is written from.

    hardness: the JSON of `lab.experiments.hardness`. machine: on which the run was. note: on deviations.
    """

    pair: Pair
    trained: Sequence[Trained]
    hardness: dict[str, Any] | None
    machine: str
    note: str | None

    @classmethod
    def read(cls, pair: Pair, run: Path, hardness: Path | None, machine: str, note: str | None) -> Card:
        """Raises CheckpointError where the run is not finished, or the hardness file is none."""
        trained = [Trained.read(run, name) for name in pair.recipes]
        found = None
        if hardness is not None:
            try:
                found = json.loads(hardness.read_text(encoding="utf-8"))
                hardness_lines(found)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise CheckpointError(
                    f"{hardness}: expected hardness.json of lab.experiments.hardness, found "
                    f"{type(error).__name__}: {error}"
                ) from error
        return cls(pair, trained, found, machine, note)

    def write(self, folder: Path) -> None:
        """Write the card, the plot and the log into the folder of the shipped weights."""
        log = {
            one.name: {"log": _columns(one.log), "evaluations": _columns(one.evaluations)}
            for one in self.trained
        }
        (folder / LOG).write_text(json.dumps(log, separators=(",", ":")) + "\n", encoding="utf-8")
        plot([one.log_file for one in self.trained], folder / PLOT)
        (folder / "README.md").write_text("\n".join(self.lines(folder)) + "\n", encoding="utf-8")

    def lines(self, folder: Path) -> Iterator[str]:
        """The card of the weights in a folder, line by line."""
        pair = self.pair
        sizes = {path.parent.name: path.stat().st_size for path in sorted(folder.rglob("*.safetensors"))}
        vocabulary = next(iter(pair.shapes.values()))["pad_token_id"]
        eight_bits = "".join(
            f", {name} in int8 by rows (`lab/pairs/row_weights.py`)" for name in pair.rounded
        )
        yield from (
            f"# Model card: {', '.join(sizes)}",
            "",
            *wrap(
                f"Made by `python -m lab.pairs.ship {pair.name}` from a run of `python -m lab.pairs.train "
                f"{pair.name}`, from scratch. {pair.about}",
                100,
            ),
            "",
            *self.model_table(),
            "",
            f"Vocabulary {vocabulary:,} and {len(SPECIALS)} special tokens. Megabytes of weights: "
            + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in sizes.items())
            + f"; bf16{eight_bits}.",
            f"The edge model's bundle is `edge_runtime/bundles/{pair.edge}`.",
            f"Trained on {self.machine}. Tokens include padding; seconds are those of the training loop.",
            "",
            f"![loss]({PLOT})",
            "",
            f"[{LOG}]({LOG}) has the whole log: mean loss, seconds and tokens a second of every ten",
            "steps, and every evaluation on the way.",
        )
        found = [*self.deviations(), *([self.note] if self.note else [])]
        if found:
            yield from ("", "**Deviations from the recipe.** " + " ".join(found))
        yield from ("", "## Evaluation", "")
        if self.hardness is not None:
            yield "`python -m lab.experiments.hardness`, held-out questions:"
            yield from ("", *hardness_lines(self.hardness), "")
        yield from evaluation_lines(self.trained)
        yield from ("", "## Sources", "", *pair.sources())

    def deviations(self) -> Iterator[str]:
        """Where the recipe of the run is another than the pair's, in words."""
        for one in self.trained:
            ran, states = asdict(one.recipe), asdict(self.pair.recipes[one.name])
            other = [
                f"{name} {ran[name]} instead of {states[name]}"
                for name in states
                if ran[name] != states[name]
            ]
            if other:
                yield f"{one.name} was trained with {', '.join(other)}."

    def model_table(self) -> Iterator[str]:
        yield f"| | {' | '.join(one.name for one in self.trained)} |"
        yield "|---|" + "---|" * len(self.trained)
        rows = {
            "parameters": [
                f"{_parameters(self.pair.shapes[one.name]) / 1e6:.2f} million" for one in self.trained
            ],
            "shape": [_shape(self.pair.shapes[one.name]) for one in self.trained],
            "steps": [_steps(one.recipe) for one in self.trained],
            "tokens": [" + ".join(f"{n / 1e6:.1f} million" for n in one.tokens if n) for one in self.trained],
            "learning rate": [
                f"Muon {one.recipe.muon_rate:g}, AdamW {one.recipe.adam_rate:g}, linear decay over the last "
                f"{one.recipe.decay_share:.0%}"
                for one in self.trained
            ],
            "averaged weights": [f"decay {one.recipe.ema:g}" for one in self.trained],
            "last loss, nats a token": [
                f"{one.log[-1]['loss']:.3f}" if one.log else "" for one in self.trained
            ],
            "seconds": [f"{one.seconds:,.0f}" for one in self.trained],
        }
        for name, cells in rows.items():
            yield f"| {name} | {' | '.join(cells)} |"


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float | None]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def _parameters(shape: Mapping[str, Any]) -> int:
    with torch.device("meta"):
        return shapes.parameters(shapes.build(shape))


def _shape(shape: Mapping[str, Any]) -> str:
    tied = "tied" if shape["tie_word_embeddings"] else "untied"
    layers, heads = shape["num_hidden_layers"], shape["num_attention_heads"]
    return f"{layers} layers of {shape['hidden_size']}, {heads} heads, {tied}"


def _steps(recipe: TrainingRecipe) -> str:
    causal = f"{recipe.causal_steps:,} causal of {recipe.causal_tokens:,} tokens"
    masked = recipe.steps - recipe.causal_steps
    return causal + (f", then {masked:,} masked of {recipe.masked_tokens:,}" if masked else "")


def hardness_lines(found: dict[str, Any]) -> list[str]:
    """The table of `lab.experiments.hardness`; raises KeyError or TypeError for other JSON."""
    lines = [f"| {found['questions']} questions | wanted | found [95%] | n | |", "|---|---|---|---|---|"]
    for figure in found["figures"]:
        value = figure["found"]
        shown = (
            f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]" if value else "no such answer"
        )
        reached = "reached" if figure["reached"] else "not reached"
        lines.append(
            f"| {figure['name']} | {figure['wanted']} | {shown} | {value['n'] if value else 0} | {reached} |"
        )
    return lines


def evaluation_lines(trained: Sequence[Trained]) -> Iterator[str]:
    kinds = list(dict.fromkeys(k for one in trained for row in one.evaluations for k in row if k != "step"))
    if not kinds:
        yield "None was taken."
        return
    yield from ("Share of right answers to held-out questions during the training:", "")
    yield f"| | step | {' | '.join(kinds)} |"
    yield "|---|---|" + "---|" * len(kinds)
    for one in trained:
        for row in one.evaluations:
            cells = (f"{row[kind]:.2f}" if kind in row else "" for kind in kinds)
            yield f"| {one.name} | {row['step']:,} | {' | '.join(cells)} |"
