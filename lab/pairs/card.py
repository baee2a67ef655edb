"""The model card of a pair: README.md beside its weights, with the plot of the losses and the training log.

Every figure is read from the run, its checkpoints or the measurement's JSON. Responsible for the card's
content and files. Not responsible for the weights beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any

import torch

from cloud_anchor.errors import CheckpointError
from cloud_anchor.shipped import TAUGHT
from common.files import read_records
from lab.pairs import shapes
from lab.pairs.pair import Pair, TrainingRecipe
from lab.pairs.tokens import SPECIALS
from lab.pairs.trainer import plot
from lab.publish import whole

LOG = "training-log.json"
PLOT = "loss.png"
CURVE = "curve.jsonl"


@dataclass(frozen=True)
class Trained:
    """One model of a finished run.

    log: the loop's records, one of ten steps. evaluations: right answers by kind, at some steps.
    """

    name: str
    recipe: TrainingRecipe
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
        return cls(name, recipe, read_records(log), read_records(run / f"{name}.evaluations.jsonl"))

    @classmethod
    def kept(cls, weights: Path, name: str, recipe: TrainingRecipe) -> Trained:
        """A model that stays as it ships, from the log beside its weights; raises CheckpointError."""
        try:
            found = json.loads((weights / LOG).read_text(encoding="utf-8"))[name]
            return cls(name, recipe, _rows(found["log"]), _rows(found["evaluations"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{weights / LOG}: expected the log of {name}, found {type(error).__name__}: {error}"
            ) from error

    def properties(self, shape: Mapping[str, Any]) -> dict[str, str]:
        """What the card tells of the model, which has this shape; tokens include padding."""
        recipe = self.recipe
        masked_steps = recipe.steps - recipe.causal_steps
        steps = f"{recipe.causal_steps:,} causal of {recipe.causal_tokens:,} tokens"
        tokens = f"{recipe.causal_steps * recipe.causal_tokens / 1e6:.1f} million"
        if masked_steps:
            steps += f", then {masked_steps:,} masked of {recipe.masked_tokens:,}"
            tokens += f" + {masked_steps * recipe.masked_tokens / 1e6:.1f} million"
        with torch.device("meta"):
            parameters = shapes.parameters(shapes.build(shape))
        last = self.log[-1] if self.log else None
        return {
            "parameters": f"{parameters / 1e6:.2f} million",
            "shape": f"{shape['num_hidden_layers']} layers of {shape['hidden_size']}, "
            f"{shape['num_attention_heads']} heads, {'tied' if shape['tie_word_embeddings'] else 'untied'}",
            "steps": steps,
            "tokens": tokens,
            "learning rate": f"Muon {recipe.muon_rate:g}, AdamW {recipe.adam_rate:g}, linear decay over the "
            f"last {recipe.decay_share:.0%}",
            "averaged weights": f"decay {recipe.ema:g}",
            "last loss, nats a token": f"{last['loss']:.3f}" if last else "",
            "seconds": f"{last['seconds']:,.0f}" if last else "",
        }


@dataclass(frozen=True)
class Card:
    """What a card is written from.

    hardness: that experiment's table. machine: on which the run was. note: on deviations. curve: of the run
    of `lab distil` by which the taught model was made that ships beside, empty where none does.
    """

    pair: Pair
    trained: Sequence[Trained]
    hardness: Mapping[str, Any] | None
    machine: str
    note: str | None
    curve: Sequence[Mapping[str, float]] = ()

    @classmethod
    def read(
        cls,
        pair: Pair,
        run: Path,
        hardness: Path | None,
        machine: str,
        note: str | None,
        keep: Sequence[str] = (),
        weights: Path = Path(),
        taught: Path | None = None,
    ) -> Card:
        """Raises CheckpointError where the run is not finished, or the hardness file is none.

        keep: models that stay as they ship in `weights`. taught: folder of a run of `lab distil`.
        """
        trained = [
            Trained.kept(weights, name, recipe) if name in keep else Trained.read(run, name)
            for name, recipe in pair.recipes.items()
        ]
        table = None
        try:
            if hardness:
                table = json.loads(hardness.read_text(encoding="utf-8"))["tables"]["hardness"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{hardness}: expected tables.json of the experiment hardness, found "
                f"{type(error).__name__}: {error}"
            ) from error
        curve = read_records(taught / CURVE) if taught else _kept_curve(weights)
        if taught:  # raises where it is not finished
            Trained.read(taught, pair.student)
        if taught and not curve:
            raise CheckpointError(
                f"{taught / CURVE}: expected the curve of a run of `lab distil`, found none"
            )
        return cls(pair, trained, table, machine, note, curve)

    def write(self, folder: Path) -> None:
        """Write the card, the plot and the log into the folder of the shipped weights."""
        log: dict[str, Any] = {
            one.name: {"log": _columns(one.log), "evaluations": _columns(one.evaluations)}
            for one in self.trained
        }
        if self.curve:
            log[CURVE] = _columns(self.curve)
        (folder / LOG).write_text(json.dumps(log, separators=(",", ":")) + "\n", encoding="utf-8")
        with TemporaryDirectory() as made:
            files = [Path(made) / f"{one.name}.jsonl" for one in self.trained]
            for one, file in zip(self.trained, files, strict=True):
                file.write_text("".join(f"{json.dumps(row)}\n" for row in one.log), encoding="utf-8")
            plot(files, folder / PLOT)
        (folder / "README.md").write_text("\n".join(self.lines(folder)) + "\n", encoding="utf-8")

    def lines(self, folder: Path) -> Iterator[str]:
        """The card of the weights in a folder, line by line."""
        pair = self.pair
        sizes = {path.parent.name: path.stat().st_size for path in sorted(folder.rglob("*.safetensors"))}
        vocabulary = next(iter(pair.shapes.values()))["pad_token_id"]
        rounded = [*pair.rounded, *([TAUGHT.format(pair.name)] if self.curve else [])]
        form = "all in bf16"
        if rounded:
            form = f"{', '.join(rounded)} in int8 by rows (`lab/pairs/row_weights.py`), "
            form += "the others in bf16"
        yield from (
            f"# Model card: {', '.join(sizes)}",
            "",
            *wrap(
                f"Made by `python -m lab.pairs.ship {pair.name}` from a run of `python -m lab.pairs.train "
                f"{pair.name}`, from scratch. {pair.about}",
                100,
            ),
            "",
            markdown(self.model_rows()),
            "",
            f"Vocabulary {vocabulary:,} and {len(SPECIALS)} special tokens. Megabytes of weights: "
            + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in sizes.items())
            + f"; {form}.",
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
            yield f"`python -m lab run hardness`, {self.hardness['title']}:"
            yield from ("", whole(self.hardness), "")
        if self.curve:
            taught = TAUGHT.format(pair.name)
            yield f"{taught} is {pair.student}, taught to answer in few passes (`lab/distil/`)."
            yield "By steps, on held-out questions with long answers, each against its own finished run:"
            yield from ("", markdown(self.curve), "")
        if evaluations := self.evaluation_rows():
            yield "Share of right answers to held-out questions during the training:"
            yield from ("", markdown(evaluations))
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

    def model_rows(self) -> list[dict[str, str]]:
        """A row for each property of the models, a column for each model."""
        about = {one.name: one.properties(self.pair.shapes[one.name]) for one in self.trained}
        names = next(iter(about.values()))
        return [{"": name} | {model: of[name] for model, of in about.items()} for name in names]

    def evaluation_rows(self) -> list[dict[str, str]]:
        """A row for each evaluation on the way."""
        return [
            {"": one.name}
            | {kind: f"{value:,}" if kind == "step" else f"{value:.2f}" for kind, value in row.items()}
            for one in self.trained
            for row in one.evaluations
        ]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table, with every column that a row has."""
    return whole({"columns": list(dict.fromkeys(name for row in rows for name in row)), "rows": rows})


def _kept_curve(weights: Path) -> Sequence[dict[str, float]]:
    """The curve of the taught model that ships beside these weights; none where there is no such model."""
    found = json.loads((weights / LOG).read_text(encoding="utf-8")) if (weights / LOG).is_file() else {}
    return _rows(found.get(CURVE, {}))


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def _rows(columns: Mapping[str, Sequence[float | None]]) -> list[dict[str, float]]:
    """What `_columns` was made of."""
    whole_ = (zip(columns, values, strict=True) for values in zip(*columns.values(), strict=True))
    return [{name: value for name, value in row if value is not None} for row in whole_]
