"""Training of the tiny models from scratch: `python -m lab.pairs.train`.

Responsible for recipes, losses, optimisers, checkpoints, the log (JSON lines) and its plot. Not responsible
for batches (see `training_data`) or for evaluation (see `lab.evaluate`).

tiny-qwen, in two sizes, is trained on worlds redrawn for every sample. tiny-dream is trained on the true
world, first with a causal loss (as Dream was initialised from Qwen2.5's weights, hence the shift of its
logits) and then as a masked diffusion model with full attention. Runs are seeded and resumable.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from common.cli import run_command
from lab.pairs import shapes, vocabulary
from lab.pairs.training_data import TINY, Batches, BatchSource, Curriculum, TrainingBatch, mask


@dataclass(frozen=True)
class TrainingRecipe:
    """Hyperparameters of one model.

    causal_steps: first steps, which have the causal loss; all of them for an autoregressive model.
    early_steps:  first of these, which have the curriculum's early mix.
    knows:        True for the true world, False for worlds redrawn per sample.
    causal_tokens, masked_tokens: tokens per batch with either loss.
    muon_rate, adam_rate: peak learning rates. decay_share: share of the steps with linear decay.
    ema:          decay of the averaged weights, which are exported.
    diffusion:    True where it ends as a masked diffusion model.
    causal_name:  checkpoint of the model at the end of its causal steps, where it is kept.
    """

    name: str
    steps: int
    causal_steps: int
    knows: bool
    causal_tokens: int = 4096
    masked_tokens: int = 8192
    muon_rate: float = 0.01
    adam_rate: float = 2e-3
    decay_share: float = 0.4
    ema: float = 0.998
    diffusion: bool = False
    causal_name: str | None = None
    early_steps: int = 0


RECIPES = {
    "tiny-dream": TrainingRecipe("tiny-dream", steps=10_400, causal_steps=3_400, knows=True, diffusion=True),
    "tiny-qwen": TrainingRecipe("tiny-qwen", steps=2_000, causal_steps=2_000, knows=False),
    "tiny-qwen-large": TrainingRecipe("tiny-qwen-large", steps=2_000, causal_steps=2_000, knows=False),
}

CANVAS_PROMPT = 64
"""So many tokens of the longest training row are left to the prompt: the rest is the exported canvas."""


class Trainer:
    """One training run: model, optimisers, averaged weights and the current step."""

    def __init__(
        self,
        recipe: TrainingRecipe,
        folder: Path,
        *,
        seed: int,
        device: str,
        compiled: bool,
        configuration: Mapping[str, Any] | None = None,
        curriculum: Curriculum = TINY,
        initial: Callable[[Qwen2ForCausalLM], None] | None = None,
    ) -> None:
        torch.manual_seed(seed)
        self.recipe, self.folder, self.seed, self.device = recipe, folder, seed, device
        self.configuration = configuration or shapes.SHAPES[recipe.name]
        self.curriculum = curriculum
        self.mask_id = shapes.special_ids(self.configuration["pad_token_id"])[3]
        self.model = self.build()
        if initial:
            initial(self.model)
        self.model.to(device)
        self.ema = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.step = self.first = 0
        backbone = self.model.model
        matrices = [p for n, p in backbone.named_parameters() if p.ndim == 2 and "embed" not in n]
        taken = {id(p) for p in matrices}
        others = [p for p in self.model.parameters() if id(p) not in taken]
        self.optimisers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=recipe.muon_rate, weight_decay=0.01, adjust_lr_fn="original"),
            torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self.backbone = torch.compile(backbone, dynamic=True) if compiled else backbone

    def build(self) -> Qwen2ForCausalLM:
        """The model with random weights."""
        return shapes.build(self.configuration)

    def batches(self, tokenizer: Tokenizer) -> BatchSource:
        """The source of the run's batches."""
        return Batches(tokenizer, knows=self.recipe.knows, seed=self.seed, families=self.curriculum.families)

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"{self.recipe.name}.pt"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.recipe.name}.jsonl"

    def save(self) -> None:
        """Write the checkpoint and replace the old one atomically."""
        fresh = self.checkpoint.with_suffix(".new")
        state = {
            "model": self.model.state_dict(),
            "ema": self.ema,
            "optimisers": [o.state_dict() for o in self.optimisers],
            "step": self.step,
            "first": self.first,
            "seed": self.seed,
            "recipe": asdict(self.recipe),
        }
        torch.save(state, fresh)
        os.replace(fresh, self.checkpoint)

    def resume(self) -> None:
        """Restore the state of the checkpoint, where there is one."""
        if not self.checkpoint.exists():
            self.log.unlink(missing_ok=True)
            return
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.ema = state["ema"]
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.step, self.first = int(state["step"]), int(state["first"])
        kept = [line for line in self.logged() if line["step"] <= self.step]
        self.log.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def logged(self) -> list[dict[str, float]]:
        """The log's records: step, mean loss since the record before, seconds of training."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def start_from(self, folder: Path, step: int) -> None:
        """Continue from an exported checkpoint folder as if it were this run's `step`.

        The optimisers are new, hence the warm-up. Raises FileNotFoundError, and RuntimeError for other
        shapes.
        """
        state = load_file(folder / "model.safetensors", device=self.device)
        self.model.load_state_dict({k: v.float() for k, v in state.items()}, strict=not self.tied)
        self.ema = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.step = self.first = step

    @property
    def tied(self) -> bool:
        """True where embedding and head share their weights, which are stored once."""
        return bool(self.model.config.tie_word_embeddings)

    @property
    def causal(self) -> bool:
        """True where the next step has the causal loss."""
        return self.step < self.recipe.causal_steps

    def batch(self, batches: BatchSource) -> TrainingBatch:
        """The next step's batch."""
        if self.causal:
            early = self.curriculum.early if self.step < self.recipe.early_steps else None
            return batches.at(self.step, self.recipe.causal_tokens, early or self.curriculum.causal)
        return batches.at(self.step, self.recipe.masked_tokens, self.curriculum.masked)

    def _rate(self) -> float:
        """Learning-rate factor: 100 steps of warm-up, constant, linear decay over the last share."""
        decay = self.recipe.decay_share * self.recipe.steps
        return min(1.0, (self.step + 1 - self.first) / 100, max(0.0, (self.recipe.steps - self.step) / decay))

    def _loss(self, batch: TrainingBatch) -> torch.Tensor:
        """Mean cross-entropy of the trained positions, in nats; position p is predicted at p - 1."""
        causal = self.causal
        length = batch.ids.shape[1]
        at = torch.arange(length)[None]
        if causal:
            ids, wanted = batch.ids, (at >= batch.start[:, None]) & (at <= batch.end[:, None])
        else:
            ids, wanted = mask(batch, np.random.default_rng([self.seed, self.step]), self.mask_id)
        # The tail of end markers is long and easily predicted.
        weight = torch.where(at > batch.end[:, None], 0.1, 1.0)
        targets, weights = batch.ids[wanted].to(self.device), weight.expand(ids.shape)[wanted].to(self.device)
        # The mask is built here: inside the compiled graph, transformers would build it for every length.
        attention = None
        if causal:
            attention = torch.full((1, 1, length, length), float("-inf"), device=self.device).triu(1)
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            hidden = self.backbone(
                input_ids=ids.to(self.device), attention_mask={"full_attention": attention}, use_cache=False
            ).last_hidden_state
            logits = self.model.lm_head(hidden[:, :-1][wanted[:, 1:].to(self.device)])
        losses = F.cross_entropy(logits.float(), targets, reduction="none")
        return (losses * weights).sum() / weights.sum()

    def advance(self, batch: TrainingBatch) -> float:
        """One step of both optimisers; returns the loss in nats per token."""
        loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        factor = self._rate()
        for optimiser, rate in zip(
            self.optimisers, (self.recipe.muon_rate, self.recipe.adam_rate), strict=True
        ):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.step += 1
        taken = self.step - self.first
        keep = min(self.recipe.ema, taken / (taken + 10))
        with torch.no_grad():
            for key, value in self.model.state_dict().items():
                self.ema[key].lerp_(value, 1 - keep)
        return float(loss.detach())

    def averaged(self) -> Qwen2ForCausalLM:
        """A model with the averaged weights."""
        model = self.build()
        model.load_state_dict(self.ema)
        return model.to(self.device)

    def export(self, tokenizer_folder: Path, folder: Path, *, diffusion: bool | None = None) -> None:
        """Write the averaged weights as a checkpoint folder, by default of the recipe's architecture."""
        shapes.write(
            self.configuration,
            self.averaged(),
            tokenizer_folder,
            folder,
            diffusion=self.recipe.diffusion if diffusion is None else diffusion,
            canvas=max(self.curriculum.masked.lengths) - CANVAS_PROMPT,
        )


def train(
    trainer: Trainer,
    tokenizer: Tokenizer,
    *,
    save_seconds: float = 120,
    quiet: bool = False,
    watch: Callable[[Trainer], None] | None = None,
) -> None:
    """Run to the recipe's last step, logging every 10 steps and saving every `save_seconds`.

    watch: called after every step, for what a project does on the way.
    """
    recipe = trainer.recipe
    batches = trainer.batches(tokenizer)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("{task.fields[speed]:.0f} tokens/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    recent: list[float] = []
    saved = time.monotonic()
    started = saved - (trainer.logged() or [{"seconds": 0.0}])[-1]["seconds"]
    with Progress(*columns, disable=quiet) as progress, trainer.log.open("a") as log:
        bar = progress.add_task(
            recipe.name, total=recipe.steps, completed=trainer.step, loss=float("nan"), speed=0
        )
        tokens, since = 0, saved
        while trainer.step < recipe.steps:
            batch = trainer.batch(batches)
            tokens += batch.ids.numel()
            recent.append(trainer.advance(batch))
            if trainer.step % 10 == 0:
                mean = sum(recent) / len(recent)
                recent.clear()
                now = time.monotonic()
                speed, tokens, since = tokens / (now - since), 0, now
                record = {"step": trainer.step, "loss": round(mean, 4), "seconds": round(now - started, 1)}
                log.write(json.dumps(record | {"tokens_per_second": round(speed)}) + "\n")
                log.flush()
                progress.update(bar, completed=trainer.step, loss=mean, speed=speed)
            if time.monotonic() - saved > save_seconds:
                trainer.save()
                saved = time.monotonic()
            if watch:
                watch(trainer)
    trainer.save()


def plot(logs: list[Path], file: Path) -> None:
    """Plot loss against steps, one curve per log."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for path in logs:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        axes.plot([r["step"] for r in rows], [r["loss"] for r in rows], label=path.stem, linewidth=0.8)
    axes.set(xlabel="step", ylabel="loss (nats per token)", yscale="log")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    plt.close(figure)


@dataclass(frozen=True)
class Project:
    """Models that one command trains.

    configurations: of each recipe's model. tokenizer: makes theirs. watch: see `train`; with the run's folder
    of the tokenizer. initial: sets weights of a new model, where random ones will not do.
    """

    recipes: Mapping[str, TrainingRecipe]
    configurations: Mapping[str, Mapping[str, Any]]
    curriculum: Curriculum
    tokenizer: Callable[[], Tokenizer]
    watch: Callable[[Trainer, Path], None] | None = None
    initial: Callable[[Qwen2ForCausalLM], None] | None = None


TINY_PROJECT = Project(RECIPES, shapes.SHAPES, TINY, vocabulary.train)


def parser_of(
    prog: str, description: str, output: Path, recipes: Mapping[str, TrainingRecipe]
) -> ArgumentParser:
    """The options of a training command."""
    parser = ArgumentParser(
        prog=prog, description=description, epilog=f"example: {prog} --only {list(recipes)[-1]} -o {output}"
    )
    parser.add_argument("-o", "--output", type=Path, default=output, help="folder of the run")
    parser.add_argument("--only", choices=list(recipes), help="train one model only")
    parser.add_argument("--steps", type=int, help="override the number of steps")
    parser.add_argument(
        "--go-on-from",
        nargs=2,
        metavar=("FOLDER", "STEP"),
        help="start a new run from this checkpoint's weights, as if they were at that step (with --only)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="processor threads (default: torch's)")
    parser.add_argument("--no-compile", action="store_true", help="run without torch.compile")
    parser.add_argument(
        "--export", action="store_true", help="only write the checkpoint folders of a run so far"
    )
    return parser


def parse(parser: ArgumentParser, argv: list[str] | None) -> Namespace:
    """The options, of which `--go-on-from` is checked; exits with status 2 where they are wrong."""
    args = parser.parse_args(argv)
    if args.go_on_from and not (args.only and args.go_on_from[1].isdigit()):
        parser.error("--go-on-from needs a folder, a step, and --only MODEL")
    if args.go_on_from and not (Path(args.go_on_from[0]) / "model.safetensors").is_file():
        parser.error(
            f"--go-on-from: expected a folder with model.safetensors, found none in {args.go_on_from[0]}"
        )
    return args


def main(argv: list[str] | None = None) -> int:
    parser = parser_of(
        "python -m lab.pairs.train",
        "Train tiny-dream and tiny-qwen, in two sizes, from scratch on the generated world.",
        Path("runs/tiny"),
        RECIPES,
    )
    args = parse(parser, argv)
    return run_command("train", lambda: run(args, TINY_PROJECT), interrupted=interrupted(args))


def interrupted(args: Namespace) -> str:
    return f"interrupted: run the same command again to continue from {args.output}"


def run(args: Namespace, project: Project) -> int:
    """Train or export the project's models as the options say, and plot their losses."""
    if args.threads:
        torch.set_num_threads(args.threads)
    out: Path = args.output
    tokenizer_folder = out / "tokenizer"
    if not (tokenizer_folder / "tokenizer.json").exists():
        vocabulary.save(project.tokenizer(), tokenizer_folder)
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    for name in [args.only] if args.only else list(project.recipes):
        changes = {"steps": args.steps} if args.steps else {}
        recipe = TrainingRecipe(**(asdict(project.recipes[name]) | changes))
        trainer = Trainer(
            recipe,
            out,
            seed=args.seed,
            device=args.device,
            compiled=not args.no_compile,
            configuration=project.configurations[name],
            curriculum=project.curriculum,
            initial=project.initial,
        )
        if args.go_on_from and not trainer.checkpoint.exists():
            trainer.log.unlink(missing_ok=True)
            trainer.start_from(Path(args.go_on_from[0]), int(args.go_on_from[1]))
        else:
            trainer.resume()

        def watch(at: Trainer) -> None:
            if at.recipe.causal_name and at.step == at.recipe.causal_steps:
                at.export(tokenizer_folder, out / at.recipe.causal_name, diffusion=False)
            if project.watch:
                project.watch(at, tokenizer_folder)

        if not args.export:
            try:
                train(trainer, tokenizer, watch=watch)
            except KeyboardInterrupt:
                trainer.save()
                raise
        trainer.export(tokenizer_folder, out / name)
        print(f"{name}: step {trainer.step} of {recipe.steps}, written to {out / name}", file=sys.stderr)
    logs = [out / f"{name}.jsonl" for name in project.recipes if (out / f"{name}.jsonl").exists()]
    if logs:
        plot(logs, out / "loss.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
