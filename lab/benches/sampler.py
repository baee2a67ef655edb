"""The sampler's speed beside the plain one's: `python -m lab run sampler -o FOLDER`.

The plain sampler runs one prompt at a time, computes all positions' logits and sorts the whole vocabulary;
both answer the same held-out questions in the same run. Not responsible for the quality of answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from common.cli import option
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import load_items
from lab.runs import canvas_at
from lab.store import Record
from lab.tables import Row, Table

T = TypeVar("T")

PLAIN = "plain"


@dataclass(frozen=True)
class SamplerOptions:
    batch: tuple[int, ...] = option((8,), "sizes of batches")
    steps: int | None = option(None, "steps run (default: all of the plan)", kind=int)
    repeat: int = option(3, "the best of this many is taken")
    stop: str | None = option(None, "also with this stop rule", choices=sorted(STOPS))


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


def best_of(repeats: int, device: torch.device, work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives, and the seconds of its fastest run."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return result, best


def cells(setup: Setup) -> list[str]:
    """The plain sampler, then each batch without and with the stop rule."""
    own: SamplerOptions = setup.own
    if min(own.batch) < 1 or own.repeat < 1:
        raise RequestError("--batch, --repeat: expected at least 1")
    rules = ["batched", *([f"stop {own.stop}"] if own.stop else [])]
    return [PLAIN, *(f"{rule}, {size}" for rule in rules for size in own.batch)]


def measure(setup: Setup, names: Sequence[str]) -> Iterator[Record]:
    options, own = setup.options, setup.own
    model = load_model(options.model, device=options.device, dtype=options.dtype)
    if not isinstance(model, DreamModel):
        found = f"found {options.model}, which writes in blocks"
        raise RequestError(f"--model: expected a model that predicts the whole canvas, {found}")
    plan = {"canvas": options.canvas or 128, "total_steps": options.total_steps or 128, "steps": own.steps}
    config = DenoiseConfig(**plan, order="entropy", temperature=0.2, top_p=0.95)
    form = prompt_form(model, find_checkpoint(options.model), None)
    asked = load_items(options.sources, options.prompts or max(own.batch), options.seed)
    prompts = [form.ids(item.prompt) for item in asked]
    answers = [run.answer for run in denoise(model, prompts, config)]
    anchors = sum(token != model.mask_id for answer in answers for token in answer)
    count, time_of = len(prompts), partial(best_of, own.repeat, model.device)
    expected, seconds = time_of(lambda: [plain(model, prompt, config) for prompt in prompts])
    for name in names:
        steps, size, same = [config.run_steps] * count, 1, None
        if name != PLAIN:
            rule, size = name.partition(",")[0], int(name.split()[-1])
            how = config if rule == "batched" else replace(config, stop=own.stop)
            runs, seconds = time_of(partial(denoise, model, prompts, how, size))
            canvases = [[canvas_at(run, step) for step in range(1, config.run_steps + 1)] for run in runs]
            ends = [len(answer) for answer in answers] if how.stop else None
            steps, same = [run.steps for run in runs], _shared(canvases, expected, model.mask_id, ends)
        yield {
            "batch": size,
            "steps": sum(steps) / count,
            "ms": 1000 * seconds * size / sum(steps),
            "prompts": count / seconds,
            "anchors": anchors / seconds,
            "same": same,
        }


def tables(records: Records, about: About) -> list[Table]:
    lines: list[Row] = [
        {
            "sampler": each["id"].partition(",")[0],
            "batch": each["batch"],
            "steps per answer": round(each["steps"], 1),
            "ms per step": round(each["ms"], 1),
            "anchors/s": round(each["anchors"], 1),
            "times plain": round(each["prompts"] / records[0]["prompts"], 2),
            "commits": _same(each["same"]),
        }
        for each in records
    ]
    note = (
        "anchors: committed tokens before an answer's end. commits: those inside answers, under a stop rule."
    )
    return [Table.of("sampler", "Whole answers to held-out questions", lines, note)]


def _same(share: float | None) -> str:
    if share is None:
        return ""
    return "identical" if share == 1 else f"{share:.1%} the same"


EXPERIMENT = Experiment(
    "sampler",
    "The sampler's speed, beside the plain one's",
    measure,
    tables,
    options=SamplerOptions,
    items=cells,
    opens=False,
    together=100,
)
