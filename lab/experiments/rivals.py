"""Experiment `rivals`: what a sceptic would send instead, on the same questions with the same models.

The finished answer as text, compressed or coded against the device's model; the unfinished draft sent whole;
the device's tokens where it is sure and the cloud's elsewhere (as in R2R, arXiv 2505.21600, with the device's
own probability as the router); the device alone. Every text is one that the device decoded. Not responsible
for how long links take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from cloud_anchor.pipeline import Pipeline, PipelineResult
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import CONFIDENCE, Selection
from common.cli import option
from edge_runtime.decode.forced import FillStats
from edge_runtime.engine.base import log_total
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.passes import in_parallel, runs_at
from lab.formats.codec_bench import text_codecs
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Column, Table, less_than
from payload import Codec, Shared, encode
from payload.bytesio import varint

SURE = 0.5
"""Probability from which the device keeps its own token when it routes."""
TEXTS = {"text": "raw", "gzip": "gzip", "zstd with the prompt": "zstd-dictionary"}
"""How the finished answer is sent as text: the name in the table, and that of the codec."""
DRAFT = Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0))
"""Every current prediction."""


@dataclass(frozen=True)
class RivalOptions:
    fractions: tuple[float, ...] = option(
        (0.1, 0.25), "shares of the steps after which ours sends", metavar="F"
    )


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are denoised together."""
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    plan = pipeline.plan()
    marks = {fraction: steps_for(fraction, plan.total_steps) for fraction in setup.own.fractions}
    prompts = [pipeline.form.ids(item.prompt) for item in items]
    runs = runs_at(pipeline, prompts, in_parallel(plan), sorted({*marks.values(), plan.total_steps}))
    for item, prompt, found in zip(items, prompts, runs, strict=True):
        case = Case(item, prompt, pipeline.form, edge, plan.canvas, setup.options.seed)
        early = {fraction: found[mark] for fraction, mark in marks.items()}
        yield {"answers": list(_methods(pipeline, case, found[plan.total_steps], early))}


def _methods(
    pipeline: Pipeline, case: Case, finished: Denoised, early: dict[float, Denoised]
) -> Iterator[Record]:
    """The methods on one question; passes: of the diffusion model, of the edge model in the cloud, and of
    the device.
    """
    answer, prompt, steps = finished.answer, case.item.prompt, finished.steps

    def row(
        method: str, ids: Sequence[int], size: int, passes: tuple[int, int, int], requests: int = 1
    ) -> Record:
        taken = dict(zip(("cloud", "edge", "device"), passes, strict=True))
        return case.judged(ids, answer) | {"method": method, "bytes": size, "requests": requests} | taken

    def coded(method: str, result: PipelineResult) -> Record:
        data, passes = _predictive(pipeline, result)
        filled = case.edge.runtime.fill(case.edge.runtime.read(data, prompt))
        ids = [token.id for token in filled]
        passes += result.walk.passes if result.walk else 0
        return row(method, ids, len(data), (result.run.steps, passes, filled.stats.passes))

    codecs = text_codecs(prompt)
    for name, codec in TEXTS.items():
        size = len(codecs[codec](case.text(answer).encode()))
        yield row(f"whole answer, {name}", answer, size, (steps, 0, 0))
    anchors = finished.anchors(dict(enumerate(answer)), case.contract, len(answer))
    yield coded("whole answer, codec predictive", PipelineResult(prompt, finished, anchors, None))
    for fraction, run in early.items():
        for name, selection in (("ours", Selection()), ("the whole draft, codec predictive", DRAFT)):
            (result,) = pipeline.select([prompt], [run], selection)
            yield coded(f"{name}, {fraction:.0%} of the steps", result)
    ids, asked = routed(case, _next_token(pipeline, case))
    size = sum(len(varint(token)) for token in asked)
    yield row("routing, token by token", ids, size, (len(asked), 0, len(ids) + 1), len(asked))
    alone = case.alone()
    yield row("device alone", alone.ids, 0, (0, 0, alone.passes), 0)


def _predictive(pipeline: Pipeline, result: PipelineResult) -> tuple[bytes, int]:
    """A payload of codec predictive, and the passes of the edge model that writing it takes in the cloud."""
    assert pipeline.edge is not None  # the laboratory opens a pipeline with an edge model
    stats = FillStats()
    predictor = pipeline.edge.predictor(result.run.prompt_ids, stats)
    contract, tokenizer = result.anchors.contract, pipeline.form.tokenizer
    shared = Shared(contract, result.run.prompt_ids, tokenizer, predictor=predictor)
    data = encode(result.anchors, shared, Codec.PREDICTIVE, result.run.extras(), draft=result.draft)
    return data, stats.passes


def _next_token(pipeline: Pipeline, case: Case) -> Callable[[Sequence[int]], int]:
    """The diffusion model's token behind a text: one pass with everything after it masked."""
    model = pipeline.masked_model

    def ask(text: Sequence[int]) -> int:
        canvas = torch.full((1, case.canvas), model.mask_id, device=model.device)
        canvas[0, : len(text)] = torch.tensor(text)
        wanted = torch.zeros_like(canvas, dtype=torch.bool)
        wanted[0, len(text)] = True
        logits = model.logits(model.batch([case.prompt_ids], case.canvas), canvas, wanted)
        return int(model.without_unusable(logits).argmax())

    return ask


def routed(case: Case, ask: Callable[[Sequence[int]], int]) -> tuple[list[int], list[int]]:
    """The device's greedy answer with the cloud's tokens where it is unsure, and these.

    ask: the cloud's token after a text, which may be an end.
    """
    engine = case.edge.runtime.engine
    ids: list[int] = []
    asked: list[int] = []
    engine.rewind(0)
    pending = case.prompt_ids
    while len(ids) < case.canvas:
        (logits,) = engine.append(pending, [len(pending) - 1])
        token = int(logits.argmax())
        if float(logits[token]) - log_total(logits) < math.log(SURE):
            token = ask(ids)
            asked.append(token)
        if token in case.contract.eos_ids:
            break
        ids.append(token)
        pending = [token]
    return ids, asked


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    ours = answers.where(method=f"ours, {about.own.fractions[0]:.0%} of the steps")
    columns: dict[str, Column] = {
        "N": len,
        "right": "right",
        "right, less ours": less_than(ours, "right"),
        "graded": "graded",
        "F1": "f1",
        "bytes": "bytes",
        "requests": "requests",
        "cloud passes": "cloud",
        "edge passes in the cloud": "edge",
        "device passes": "device",
    }
    note = (
        "F1: against the finished answer. Bytes: to the device, without framing. Less ours: paired, to ours "
        "after the first share. Routing: the cloud's token is that of a pass with all behind it masked."
    )
    return [answers.table("methods", "Ours and its rivals", {"method": "method"}, columns, note)]


EXPERIMENT = Experiment(
    "rivals",
    "Ours against its rivals: right answers, bytes and passes",
    measure,
    tables,
    options=RivalOptions,
    defaults={"prompts": 40},
)
