"""python -m lab.distil.cost MODEL: what a step of teaching adapters takes, and what a run would take.

The model is a checkpoint, or one of a published shape with random weights, which are made in memory: seconds,
memory and operations are those of trained weights. Rows are random tokens of a given length. Responsible for
the measurement and its tables. Not responsible for the step, which is that of a run (see `adapter_run`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.utils.flop_counter import FlopCounterMode

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import build_net, load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.families import DREAM_7B, FAMILIES, Shape
from common.cli import CommandParser, option, run_command
from edge_runtime.system import peak_rss_bytes
from lab.distil.adapter_run import AdapterRun
from lab.distil.canvases import Canvases, FinishedRow
from lab.distil.loss import open_edge
from lab.distil.options import FORMAT
from lab.options import require_at_least
from lab.pairs.pair import TrainingRecipe

SHAPES = {"dream-7b": DREAM_7B, "small": Shape(2048, 256, 512, 4, 4, 2, 4096, 1e-6, 1e6, False)}
"""Shapes for random weights, by the name that is given in place of a checkpoint."""
A100 = 312.0
"""TFLOP a second of an A100 in bfloat16 (NVIDIA's data sheet)."""
FORMULA = (
    "6 N T + 4 V H M: N weights of the layers (forward, again for the checkpoints, and back to the inputs, "
    "2 each; frozen weights have no gradients), T positions, V x H the head, M masked positions"
)


@dataclass(frozen=True)
class CostOptions:
    """Raises RequestError for values that there are not."""

    model: str = option(
        "small", f"{' or '.join(SHAPES)} with random weights, or a checkpoint", flags=("model",)
    )
    lora: int = option(32, "rank of the adapters", metavar="RANK")
    length: int = option(512, "positions of a row, prompt and canvas", metavar="N")
    canvas: int = option(256, "of them on the canvas, three quarters of these the answer's", metavar="N")
    tokens: int = option(512, "of a step", metavar="N")
    pass_tokens: int = option(4096, "most tokens of a pass", metavar="N")
    steps: int = option(2, "measured steps, after one that is not", metavar="N")
    answers: int = option(10_000, "of the run that is estimated", metavar="N")
    epochs: float = option(6.0, "how often it shows each answer", metavar="N")
    passes: int = option(180, "with which an answer is written first", metavar="N")
    share: float = option(0.4, f"of an A100's {A100:g} TFLOP/s that is reached", metavar="S")
    edge: str | None = option(None, "edge model that weighs tokens", metavar="CHECKPOINT")
    certainty: float = option(1.0, "weight of the loss of certainty", metavar="W")
    device: str = option("cuda" if torch.cuda.is_available() else "cpu", "cuda, cpu")
    threads: int | None = option(None, "processor threads (default: torch's)", kind=int, metavar="N")

    def __post_init__(self) -> None:
        require_at_least(self, 1, *"lora canvas tokens pass_tokens steps answers passes threads".split())
        if self.length <= self.canvas:
            raise RequestError(f"--length: expected more than the canvas, {self.canvas}, found {self.length}")
        if not 0 < self.share <= 1:
            raise RequestError(f"--share: expected above 0, at most 1, found {self.share}")


@dataclass(frozen=True)
class Cost:
    """Of one step. flop: counted by torch. by_formula: as FORMULA has it. peak: bytes of memory."""

    tokens: int
    seconds: float
    flop: int
    by_formula: float
    peak: int


def random_model(shape: Shape, device: str) -> DreamModel:
    """A model with random weights, which are drawn once and nowhere else."""
    place, kind = torch.device(device), getattr(torch, FORMAT)
    net = build_net(shape, place, kind)
    state = {}
    for name, weight in net.named_parameters():
        value = torch.empty(weight.shape, dtype=kind, device=place)
        state[name] = value.fill_(1.0) if "norm" in name else value.normal_(0, 0.02)
    net.load_state_dict(state, assign=True)
    net.requires_grad_(False)
    last = shape.vocab_size - 1
    return DreamModel(net, FAMILIES["Dream"], last, frozenset({last - 1}), "random weights")


def random_rows(model: DreamModel, options: CostOptions) -> Canvases:
    """Rows of random tokens, as many as the steps need."""
    generator = torch.Generator().manual_seed(0)
    ordinary = min({model.mask_id, *model.eos_ids})
    size, end = 3 * options.canvas // 4, min(model.eos_ids)
    rows = []
    for _ in range(max(1, options.tokens // options.length) * (options.steps + 1)):
        ids = torch.randint(ordinary, (options.length - options.canvas + size,), generator=generator).tolist()
        prompt, answer = tuple(ids[:-size]), tuple(ids[-size:])
        rows.append(FinishedRow(prompt, answer, tuple(range(1, size + 1)), end))
    return Canvases(rows, options.canvas, end, tokens=options.tokens, seed=0)


def measure(model: DreamModel, options: CostOptions) -> Cost:
    """The mean of the measured steps; operations are counted in the one before them."""
    rows = random_rows(model, options)
    layers = sum(weight.numel() for name, weight in model.net.named_parameters() if ".layers." in name)
    head = model.net.lm_head.weight.numel()
    recipe = TrainingRecipe("cost", options.steps + 1, 0, knows=True, adam_rate=2e-5, diffusion=True)
    with TemporaryDirectory() as folder:
        run = AdapterRun(
            model,
            rows,
            recipe,
            Path(folder),
            rank=options.lora,
            seed=0,
            certainty=options.certainty,
            pass_tokens=options.pass_tokens,
            edge=open_edge(options.edge, options.device),
        )
        masked = sum(int(each.masked.sum()) for each in rows.at(0, options.pass_tokens))
        with FlopCounterMode(display=False) as counter:
            _, tokens = run.take()
        started = time.perf_counter()
        for _ in range(options.steps):
            run.take()  # its loss is read back, so the device has finished
        seconds = (time.perf_counter() - started) / options.steps
    cuda = options.device.startswith("cuda")
    peak = torch.cuda.max_memory_allocated() if cuda else peak_rss_bytes()
    return Cost(tokens, seconds, counter.get_total_flops(), 6.0 * layers * tokens + 4.0 * head * masked, peak)


def report(options: CostOptions) -> None:
    """Print both tables."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.model in SHAPES:
        model = random_model(SHAPES[options.model], options.device)
    else:
        loaded = load_model(options.model, device=options.device, dtype=FORMAT)
        if not isinstance(loaded, DreamModel):
            raise RequestError(f"{options.model}: expected a model with full attention, such as Dream")
        model = loaded
    weights = model.parameters
    cost = measure(model, options)
    added = f"adapters of rank {options.lora} with {(model.parameters - weights) / 1e6:.1f}M"
    print(f"{options.model}, {weights / 1e6:.1f}M weights in {FORMAT}, {added}, {options.device}:\n")
    print(
        "| tokens a step | seconds a step | tokens a second | peak memory, GiB | TFLOP a step | by formula |"
    )
    print("|---|---|---|---|---|---|")
    found = (
        f"| {cost.tokens} | {cost.seconds:.2f} | {cost.tokens / cost.seconds:.0f} | {cost.peak / 2**30:.1f} "
    )
    print(f"{found}| {cost.flop / 1e12:.3g} | {cost.by_formula / 1e12:.3g} |")
    print(f"\nFormula: {FORMULA}.\n")
    reached = options.share * A100 * 1e12
    shown = options.answers * options.epochs * options.length
    training = shown * cost.flop / cost.tokens / reached / 3600
    writing = options.answers * options.passes * options.length * 2 * weights / reached / 3600
    print(f"| {options.answers} answers on one A100 at {options.share:.0%} of {A100:g} TFLOP/s | hours |")
    print("|---|---|")
    print(f"| writing them: {options.passes} passes each, 2 FLOP a weight and position | {writing:.1f} |")
    print(f"| training: each shown {options.epochs:g} times | {training:.1f} |")
    print(f"| training at the speed measured here | {shown * cost.seconds / cost.tokens / 3600:.1f} |")


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.distil.cost",
        description="Measure steps of teaching adapters, and estimate a run on one A100.",
        epilog="example:\n  python -m lab.distil.cost dream-7b --length 512 --tokens 512 --steps 2",
    )
    parser.declare(CostOptions)
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run_command("cost", lambda: report(parser.parse(CostOptions, arguments)), extra="lora")


if __name__ == "__main__":
    sys.exit(main())
