"""Sampler benchmark: `python -m lab.benches.sampler_bench`, with the plain sampler in the same run.

The plain sampler runs one prompt at a time, computes all positions' logits and sorts the whole vocabulary.
Responsible for timing steps and counting their arithmetic. Not responsible for the quality of answers (see
`runner`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.distributions import Categorical

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint, load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.prompt_form import prompt_form
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.sampling.schedules import dream
from cloud_anchor.sampling.stops import STOPS
from common.cli import CommandParser, option, run_command
from lab.options import add_options, given, world_of
from lab.questions.items import load_items
from lab.runs import canvas_at

EPILOG = """examples:
  # the shipped model, on a CPU
  python -m lab.benches.sampler_bench --model tiny --batch 1 8 32

  # whole answers to held-out questions: no step is spent behind an answer's end
  python -m lab.benches.sampler_bench --model tiny --held-out --steps 128 \\
      --stop complete --batch 8 --prompts 32
"""

T = TypeVar("T")

PROMPT_LENGTHS = (24, 31, 38, 45)
"""Tokens of the prompts, in turn, where a canvas leaves room: a batch is of different lengths."""


def plain(model: DreamModel, prompt: Sequence[int], config: DenoiseConfig) -> list[list[int]]:
    """The published procedure for one prompt; the canvas after each step. Ties go to the lower position."""
    generator_state = torch.get_rng_state()
    torch.manual_seed(config.seed)
    ids = torch.tensor([list(prompt) + [model.mask_id] * config.canvas], device=model.device)
    shares = dream(config.total_steps)
    history = []
    for step in range(config.run_steps):
        masked = ids == model.mask_id
        probabilities, tokens = _plain_draw(model.forward(ids)[masked], config)
        score = (probabilities * torch.log(probabilities + 1e-10)).sum(-1)
        count = int(masked.sum() * shares[step])
        full = torch.full(ids.shape, -torch.inf, dtype=score.dtype, device=ids.device)
        full[masked] = score
        best = full[0].sort(descending=True, stable=True).indices[:count]
        proposed = ids.masked_scatter(masked, tokens)
        ids[0, best] = proposed[0, best]
        history.append(ids[0, len(prompt) :].tolist())
    torch.set_rng_state(generator_state)
    return history


def _plain_draw(logits: Tensor, config: DenoiseConfig) -> tuple[Tensor, Tensor]:
    """Filtered probabilities [N, V] and tokens [N], by sorting every row."""
    if config.temperature > 0:
        logits = logits / config.temperature
    if config.top_p is not None and config.top_p < 1:
        values, index = logits.sort(descending=True)
        mass = values.softmax(-1).cumsum(-1)
        drop = mass > config.top_p
        drop[:, 1:] = drop[:, :-1].clone()
        drop[:, 0] = False
        drop = torch.zeros_like(drop).scatter(-1, index, drop)
        logits = logits.masked_fill(drop, torch.finfo(logits.dtype).min)
    probabilities = logits.softmax(-1)
    if config.temperature > 0:
        try:
            tokens: Tensor = Categorical(probs=probabilities).sample()  # type: ignore[no-untyped-call]
            return probabilities, tokens
        except ValueError:
            pass
    return probabilities, probabilities.max(-1).indices


@dataclass(frozen=True)
class BenchRow:
    """One row of the table.

    step_ms:  milliseconds per step of the whole batch.
    prompts, anchors: per second, at the given steps; anchors are committed tokens before an answer's end.
    steps:    mean number run per prompt.
    peak:     share of the device's throughput at one large matrix product.
    same:     share of the commits that equal the plain sampler's in token and step; with a stop rule, of
              those inside answers. None where the plain sampler was not run.
    """

    sampler: str
    batch: int
    step_ms: float
    prompts: float
    anchors: float
    steps: float
    peak: float
    same: float | None


@dataclass(frozen=True)
class Work:
    """What prompts take: floating-point operations of a step of each, and the device's speed at them."""

    operations: Sequence[float]
    peak: float

    @classmethod
    def of(cls, model: DreamModel, prompts: Sequence[Sequence[int]], canvas: int) -> Work:
        peak = matrix_speed(model.device, model.net.model.embed_tokens.weight.dtype)
        return cls([arithmetic(model, len(prompt), canvas) for prompt in prompts], peak)

    def row(
        self,
        name: str,
        batch: int,
        seconds: float,
        steps: Sequence[int],
        anchors: int,
        same: float | None = None,
    ) -> BenchRow:
        """seconds: of all. steps: run for each prompt. anchors: of all."""
        done = sum(once * count for once, count in zip(self.operations, steps, strict=True))
        each, count = 1000 / sum(steps) * batch, len(steps)
        rates = (count / seconds, anchors / seconds, sum(steps) / count, done / seconds / self.peak)
        return BenchRow(name, batch, seconds * each, *rates, same)


def compare(
    model: DreamModel,
    prompts: Sequence[Sequence[int]],
    config: DenoiseConfig,
    batches: Sequence[int],
    repeats: int,
    *,
    with_plain: bool = True,
    stop: str | None = None,
) -> list[BenchRow]:
    """The plain sampler on every prompt, then this one in batches; the best time of `repeats`.

    stop: also with this stop rule.
    """
    work = Work.of(model, prompts, config.canvas)
    expected: list[list[list[int]]] | None = None
    rows = []
    answers = [run.answer for run in denoise(model, prompts, config)]
    anchors = sum(token != model.mask_id for answer in answers for token in answer)
    if with_plain:
        expected, seconds = _best_of(
            repeats, model.device, lambda: [plain(model, p, config) for p in prompts]
        )
        rows.append(work.row("plain", 1, seconds, [config.run_steps] * len(prompts), anchors))

    def timed(name: str, how: DenoiseConfig) -> None:
        for batch in batches:
            runs, seconds = _best_of(repeats, model.device, partial(denoise, model, prompts, how, batch))
            found = [[canvas_at(run, step) for step in range(1, config.run_steps + 1)] for run in runs]
            same = None
            if expected is not None:
                ends = [len(answer) for answer in answers] if how.stop else None
                same = _shared(found, expected, model.mask_id, ends)
            rows.append(work.row(name, batch, seconds, [run.steps for run in runs], anchors, same))

    timed("batched", config)
    if stop:
        timed(f"stop {stop}", replace(config, stop=stop))
    return rows


def _shared(
    found: Sequence[list[list[int]]],
    expected: Sequence[list[list[int]]],
    mask_id: int,
    ends: Sequence[int] | None,
) -> float:
    """Share of committed places, over all steps, that are the same; canvases by step, by prompt. ends: look
    no further than these positions.
    """
    limits: Sequence[int | None] = ends or [None] * len(expected)
    pairs = [
        (token, other)
        for run, other_run, end in zip(expected, found, limits, strict=True)
        for canvas, other_canvas in zip(run, other_run, strict=True)
        for token, other in zip(canvas[:end], other_canvas[:end], strict=True)
        if token != mask_id or other != mask_id
    ]
    return sum(token == other for token, other in pairs) / max(1, len(pairs))


def _best_of(repeats: int, device: torch.device, work: Callable[[], T]) -> tuple[T, float]:
    best = float("inf")
    for _ in range(repeats):
        _wait(device)
        start = _now()
        result = work()
        _wait(device)
        best = min(best, _now() - start)
    return result, best


def _now() -> float:
    """Seconds: the processor's of this process where it computes in one thread, which other work on the
    machine does not change; else the wall clock's.
    """
    alone = torch.get_num_threads() == 1 and not torch.cuda.is_available()
    return time.process_time() if alone else time.perf_counter()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def arithmetic(model: DreamModel, prompt: int, canvas: int) -> float:
    """Floating-point operations of one step of one answer: matrix products, attention, and the whole head."""
    config = model.net.config
    length = prompt + canvas
    layers = sum(p.numel() for p in model.net.model.layers.parameters() if p.dim() == 2)
    attention = 2 * config.num_hidden_layers * length * config.hidden_size
    head = canvas * config.hidden_size * config.vocab_size
    return 2.0 * float(length * (layers + attention) + head)


def matrix_speed(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a product of two large square matrices on this device."""
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    _, seconds = _best_of(5, device, lambda: left @ right)
    return float(2 * size**3) / seconds


def random_prompts(model: DreamModel, count: int, canvas: int, highest: int) -> list[list[int]]:
    """Prompts of ids below `highest`, of several lengths that fit beside the canvas."""
    room = model.context - canvas
    if room < 1:
        raise RequestError(
            f"canvas: expected less than the model's context of {model.context}, found {canvas}"
        )
    generator = torch.Generator().manual_seed(0)
    lengths = [min(PROMPT_LENGTHS[i % len(PROMPT_LENGTHS)], room) for i in range(count)]
    return [torch.randint(0, highest, (n,), generator=generator).tolist() for n in lengths]


def held_out_prompts(source: str, model: DreamModel, data: list[str], count: int) -> list[list[int]]:
    """Questions that the model of this name was not trained on, as it is asked them."""
    form = prompt_form(model, find_checkpoint(source), None)
    return [form.ids(item.prompt) for item in load_items(data, count, 0)]


@dataclass(frozen=True)
class SamplerOptions:
    model: str = option("tiny", "tiny, testbed, a folder, or a hub name")
    batch: tuple[int, ...] = option((1, 8, 32), "sizes of batches")
    prompts: int | None = option(None, "prompts timed (default: the largest batch)", kind=int)
    canvas: int = option(128, "response positions")
    total_steps: int = option(128, "steps planned")
    steps: int = option(12, "steps run")
    repeat: int = option(3, "the best of this many is taken")
    no_plain: bool = option(False, "leave the plain sampler out")
    stop: str | None = option(None, "also with this stop rule", choices=sorted(STOPS))
    held_out: bool = option(False, "held-out questions (--data) as prompts, not random ids: answers that end")
    data: tuple[str, ...] = option((), "their sources (default: the model's own)", metavar="SOURCE")
    device: str | None = option(None, "cuda, cpu")
    threads: int | None = option(None, "CPU threads; with 1, processor time is measured", kind=int)
    json: bool = option(False, "print one JSON object")

    def __post_init__(self) -> None:
        if min(self.batch) < 1 or self.repeat < 1:
            raise RequestError("batch and repeat: expected at least 1")


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.sampler_bench",
        description="Time the sampler, with the plain one beside it.",
        epilog=EPILOG,
    )
    add_options(parser, SamplerOptions)
    found = given(SamplerOptions, vars(parser.parse_args(argv)))
    return run_command("bench", lambda: run(SamplerOptions(**found)))


def run(options: SamplerOptions) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    config = DenoiseConfig(
        canvas=options.canvas,
        total_steps=options.total_steps,
        steps=options.steps,
        order="entropy",
        temperature=0.2,
        top_p=0.95,
    )
    device, count = options.device, options.prompts or max(options.batch)
    model = load_model(options.model, device=device)
    if not isinstance(model, DreamModel):
        found = f"found {options.model}, which writes in blocks"
        raise RequestError(f"--model: expected a model that predicts the whole canvas, {found}")
    if options.held_out:
        data = list(options.data) or [world_of(options.model)]
        prompts = held_out_prompts(options.model, model, data, count)
    else:
        prompts = random_prompts(model, count, options.canvas, min(model.mask_id, *model.eos_ids))
    rows = compare(
        model,
        prompts,
        config,
        options.batch,
        options.repeat,
        with_plain=not options.no_plain,
        stop=options.stop,
    )
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        _print(rows, config, model)


def _print(rows: Sequence[BenchRow], config: DenoiseConfig, model: DreamModel) -> None:
    steps = f"{config.run_steps} of {config.total_steps} steps"
    print(f"{model.source} on {model.device}, canvas {config.canvas}, {steps}")
    print("sampler         batch  steps   ms/step  prompts/s  anchors/s  of peak  commits")
    for row in rows:
        same = "" if row.same is None else "identical" if row.same == 1 else f"{row.same:.1%} the same"
        print(
            f"{row.sampler:14} {row.batch:6} {row.steps:6.1f} {row.step_ms:9.1f} {row.prompts:10.2f} "
            f"{row.anchors:10.1f} {row.peak:8.1%}  {same}"
        )


if __name__ == "__main__":
    sys.exit(main())
