"""Phase `timing`: time of each component (section 4.8, Table 6), on this machine, one prompt at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from edge_runtime.decode.forced import FillOptions, fill
from lab.canvases import denoise_steps
from lab.case import RunCase
from lab.conditions import CLAIMED_THRESHOLD, Situation, committed, edge_aware, plan, prefix
from lab.experiment import About, Records, phase
from lab.machine import machine
from lab.tables import Answers, Row, Table
from payload import AnchorSet, Shared, decode, encode

ORDER = "confidence"
REPEATS = 3


def measure(case: RunCase) -> dict[str, Any]:
    """Milliseconds, the best of three, so that other load on the machine counts little."""
    lab = case.lab
    step = lab.paper_steps[0]
    at = case.situation(ORDER, step)
    anchors, first, chosen = committed(at), prefix(at), edge_aware(at, CLAIMED_THRESHOLD)
    tenth, full = min((_denoise(case, step) for _ in range(REPEATS)), key=lambda pair: pair[1])
    shared = Shared(case.contract, case.prompt_ids)
    data = encode(anchors, shared)
    alone = len(case.alone().ids)
    ms = {
        "tenth": tenth,
        "full": full,
        "step": full / lab.base.total_steps,
        "alone": _best(lambda: _fill(case, case.empty())),
        "anchors": _best(lambda: _fill(case, anchors)),
        "prefix": _best(lambda: _fill(case, first)),
        "aware": _best(lambda: _fill(case, chosen)),
        "walk": _best(lambda: _walk(case, at)),
        "encode": _best(lambda: encode(anchors, shared)),
        "decode": _best(lambda: decode(data, shared)),
    }
    if alone:
        ms["token"] = ms["alone"] / alone
    wire = ms["encode"] + ms["decode"]
    ms["sequential"] = ms["tenth"] + wire + ms["anchors"]
    ms["sequential prefix"] = ms["full"] + wire + ms["prefix"]
    ms["sequential aware"] = ms["tenth"] + ms["walk"] + wire + ms["aware"]
    ms["both at once"] = max(ms["tenth"] + ms["encode"], ms["decode"] + ms["anchors"])
    ratios = {
        "speedup": ms["full"] / ms["sequential"],
        "speedup at once": ms["full"] / ms["both at once"],
        "saved": 1 - ms["tenth"] / ms["full"],
    }
    cost = equation_1(
        step,
        lab.base.total_steps,
        prompt=len(case.prompt_ids),
        canvas=lab.base.canvas,
        length=len(case.fill(anchors).ids),
        weights=(lab.pipeline.model.parameters, lab.edges[0].parameters),
    )
    times = {name: round(value, 4) for name, value in (ms | ratios).items()}
    return {"machine": machine(), "cost": [cost], "answers": [times]}


def equation_1(
    steps: int, total_steps: int, *, prompt: int, canvas: int, length: int, weights: tuple[int, int]
) -> dict[str, float]:
    """T_partial C_DLM + L C_AR (section 3.2) in FLOPs, 2 a parameter and token, attention left out; and as
    the paper has it, by parameters alone.

    The device reads the prompt once as well, which the equation leaves out. weights: parameters of both.
    """
    cloud, full = (2e-9 * weights[0] * (prompt + canvas) * count for count in (steps, total_steps))
    device = 2e-9 * weights[1] * (prompt + length)
    return {
        "cloud GFLOP": cloud,
        "device GFLOP": device,
        "full GFLOP": full,
        "share": (cloud + device) / full,
        "cloud share": cloud / full,
        "share by parameters": (steps + length * weights[1] / weights[0]) / total_steps,
    }


def _denoise(case: RunCase, step: int) -> tuple[float, float]:
    """Milliseconds to `step` and to the end of one run."""
    config = plan(ORDER, case.lab.base)
    started = time.perf_counter()
    tenth = 0.0
    for state in denoise_steps(case.lab.pipeline.masked_model, [case.prompt_ids], config):
        if state.steps[0] == step:
            tenth = _since(started)
    return tenth, _since(started)


def _since(started: float) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - started)


def _best(work: Callable[[], object]) -> float:
    def once() -> float:
        started = time.perf_counter()
        work()
        return _since(started)

    return min(once() for _ in range(REPEATS))


def _fill(case: RunCase, anchors: AnchorSet) -> None:
    """A fill from an empty cache, as on a device that has not seen the prompt."""
    engine = case.lab.edges[0].runtime.engine
    engine.rewind(0)
    options = FillOptions(score_anchors=False, max_tokens=case.lab.base.canvas)
    for _ in fill(engine, case.prompt_ids, anchors, options):
        pass


def _walk(case: RunCase, at: Situation) -> None:
    case.lab.edges[0].runtime.engine.rewind(0)
    edge_aware(at, CLAIMED_THRESHOLD)


ROWS = {
    "step": "diffusion model, 1 step",
    "tenth": "diffusion model, 10% of the steps",
    "full": "diffusion model, all steps",
    "token": "edge model, 1 token, prompt shared out",
    "alone": "edge model alone, whole answer",
    "anchors": "edge model, anchors filled",
    "prefix": "edge model, prefix of as many continued",
    "aware": "edge model, edge-aware filled",
    "walk": "edge-aware selection in the cloud",
    "encode": "payload, encode",
    "decode": "payload, decode",
    "sequential": "pipeline one after the other: anchors",
    "both at once": "pipeline, both sides at once: max of cloud and device",
    "sequential prefix": "pipeline: prefix (needs the full run)",
    "sequential aware": "pipeline: edge-aware",
}
RATIOS = {
    "speedup": "full run over pipeline, times (the paper: 2.3)",
    "speedup at once": "full run over pipeline with both sides at once, times (the paper: 2.9)",
    "saved": "cloud time saved, share (the paper: 0.897)",
}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    found: list[Row] = [
        {"component": says, "N": len(answers.values(name)), "ms": answers.cell(name)}
        for name, says in (ROWS | RATIOS).items()
    ]
    machines = " and ".join(dict.fromkeys(str(record["machine"]) for record in records))
    note = (
        f"Order by {ORDER}, batch of one, wall time, the best of {REPEATS}, both sides on "
        f"{machines}; they hold for this machine only. Both at once: the time per "
        "answer of many, as the paper's max(552, 1825) ms; one answer waits for one side after the other."
    )
    return [
        Table("timing", "Timing of the components (Table 6)", ("component", "N", "ms"), found, note),
        _cost(records, about),
    ]


def _cost(records: Records, about: About) -> Table:
    """Equation 1."""
    answers = Answers.of(records, "cost")
    rows: list[Row] = [
        {"equation 1": says, "N": len(answers), "value": answers.cell(name)}
        for name, says in (
            ("cloud GFLOP", "cloud, T_partial C_DLM, GFLOP"),
            ("device GFLOP", "device, L C_AR, GFLOP"),
            ("full GFLOP", "full run, T C_DLM, GFLOP"),
            ("share", "both sides / full run, in FLOPs"),
            ("cloud share", "cloud / full run"),
            ("share by parameters", "both sides / full run, C_AR / C_DLM by parameters alone"),
        )
    ]
    note = (
        f"After {about.share(about.paper_steps[0])} steps. 2 FLOPs a parameter and token; a diffusion pass "
        "runs prompt and canvas, an edge pass one token, and the device reads the prompt too. The paper "
        "takes C_DLM / 14 for C_AR, by parameters, as if a diffusion pass ran one token, and has 10 to 15% "
        "for both sides."
    )
    return Table.of("equation-1", "Compute by equation 1 (section 3.2)", rows, note)


EXPERIMENT = phase("timing", "Timing", measure, tables, limit=20)
