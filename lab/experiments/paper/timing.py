"""Phase `timing`: time of each component (section 4.8, Table 6), on this machine, one prompt at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from edge_runtime.decode.forced import FillOptions, fill
from lab.benches.sampler import best_of
from lab.case import RunCase
from lab.conditions import CLAIMED_THRESHOLD, committed, edge_aware, plan
from lab.experiment import About, phase
from lab.runs import denoise_steps
from lab.store import Record
from lab.tables import Answers, Table
from payload import AnchorSet, Shared, decode, encode

ORDER = "confidence"
REPEATS = 3


def measure(case: RunCase) -> Iterator[Record]:
    """Milliseconds, the best of three, so that other load on the machine counts little."""
    lab = case.lab
    step, total = lab.paper_steps[0], lab.base.total_steps
    at = case.situation(ORDER, step)
    anchors, shared = committed(at), Shared(case.contract, case.prompt_ids)
    data = encode(anchors, shared)
    tenth, full = _best(lambda: _denoise(case, step)), _best(lambda: _denoise(case, total))
    writing, reading = _best(lambda: encode(anchors, shared)), _best(lambda: decode(data, shared))
    alone, filled = _best(lambda: _fill(case, case.empty())), _best(lambda: _fill(case, anchors))
    one_by_one = tenth + writing + reading + filled
    at_once = max(tenth + writing, reading + filled)
    times = {
        "diffusion model, 1 step": full / total,
        "diffusion model, 10% of the steps": tenth,
        "diffusion model, all steps": full,
        "edge model, 1 token, prompt shared out": alone / max(1, len(case.alone().ids)),
        "edge model alone, whole answer": alone,
        "edge model, anchors filled": filled,
        "edge-aware selection in the cloud": _best(lambda: edge_aware(at, CLAIMED_THRESHOLD)),
        "payload, encode": writing,
        "payload, decode": reading,
        "pipeline one after the other": one_by_one,
        "pipeline, both sides at once: max of cloud and device": at_once,
        "full run over pipeline, times (the paper: 2.3)": full / one_by_one,
        "full run over pipeline with both sides at once, times (the paper: 2.9)": full / at_once,
        "cloud time saved, share (the paper: 0.897)": 1 - tenth / full,
    }
    cost = equation_1(
        step,
        total,
        prompt=len(case.prompt_ids),
        canvas=lab.base.canvas,
        length=len(case.fill(anchors).ids),
        weights=(lab.pipeline.model.parameters, lab.edges[0].parameters),
    )
    for name, figures in (("timing", times), ("equation-1", cost)):
        yield from (
            {"table": name, "what": what, "value": round(value, 6)} for what, value in figures.items()
        )


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
        "cloud, T_partial C_DLM, GFLOP": cloud,
        "device, L C_AR, GFLOP": device,
        "full run, T C_DLM, GFLOP": full,
        "both sides / full run, in FLOPs": (cloud + device) / full,
        "cloud / full run": cloud / full,
        "both sides / full run, C_AR / C_DLM by parameters alone": (steps + length * weights[1] / weights[0])
        / total_steps,
    }


def _denoise(case: RunCase, step: int) -> None:
    for state in denoise_steps(case.lab.pipeline.masked_model, [case.prompt_ids], plan(ORDER, case.lab.base)):
        if state.steps[0] == step:
            return


def _best(work: Callable[[], object]) -> float:
    """Milliseconds of the fastest of `REPEATS`."""
    return 1000 * best_of(REPEATS, torch.device("cuda" if torch.cuda.is_available() else "cpu"), work)[1]


def _fill(case: RunCase, anchors: AnchorSet) -> None:
    """A fill from an empty cache, as on a device that has not seen the prompt."""
    engine = case.edge.runtime.engine
    engine.rewind(0)
    for _ in fill(engine, case.prompt_ids, anchors, FillOptions(score_anchors=False, max_tokens=case.canvas)):
        pass


def tables(answers: Answers, about: About) -> Iterator[Table]:
    note = (
        f"Order by {ORDER}, batch of one, wall time, the best of {REPEATS}, both sides on the machine named "
        "above; they hold for this machine only. Both at once: the time per answer of many, as the paper's "
        "max(552, 1825) ms; one answer waits for one side after the other."
    )
    flops = (
        f"After {about.share(about.paper_steps[0])} steps. 2 FLOPs a parameter and token; a diffusion pass "
        "runs prompt and canvas, an edge pass one token, and the device reads the prompt too. The paper "
        "takes C_DLM / 14 for C_AR, by parameters, as if a diffusion pass ran one token, and has 10 to 15% "
        "for both sides."
    )
    for name, title, label, unit, says in (
        ("timing", "Timing of the components (Table 6)", "component", "ms", note),
        ("equation-1", "Compute by equation 1 (section 3.2)", "equation 1", "value", flops),
    ):
        figures = answers.where(table=name)
        yield figures.table(name, title, {label: "what"}, {"N": len, unit: "value"}, says)


EXPERIMENT = phase("timing", "Timing", measure, tables, limit=20)
