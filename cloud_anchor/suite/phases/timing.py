"""Phase `timing`: time of each component (section 4.8, Table 6), on this machine, one prompt at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from cloud_anchor.sampling.sampler import denoise_steps
from cloud_anchor.suite.conditions import CLAIMED_THRESHOLD, Situation, committed, edge_aware, plan, prefix
from cloud_anchor.suite.lab import Case
from cloud_anchor.suite.phases.phase import About, Phase, Records
from cloud_anchor.suite.tables import Answers, Claim, Row, Table, verdict
from edge_runtime.decode.forced import FillOptions, fill
from payload import AnchorSet, Shared, decode, encode

ORDER = "confidence"
REPEATS = 3


def measure(case: Case) -> dict[str, Any]:
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
    ratios = {"speedup": ms["full"] / ms["sequential"], "saved": 1 - ms["tenth"] / ms["full"]}
    return {"answers": [{name: round(value, 4) for name, value in (ms | ratios).items()}]}


def _denoise(case: Case, step: int) -> tuple[float, float]:
    """Milliseconds to `step` and to the end of one run."""
    config = plan(ORDER, case.lab.base)
    started = time.perf_counter()
    tenth = 0.0
    for state in denoise_steps(case.lab.pipeline.model, [case.prompt_ids], config):
        if state.steps[0] == step:
            _wait()
            tenth = _since(started)
    _wait()
    return tenth, _since(started)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _since(started: float) -> float:
    return 1000 * (time.perf_counter() - started)


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(_since(started))
    return min(times)


def _fill(case: Case, anchors: AnchorSet) -> None:
    """A fill from an empty cache, as on a device that has not seen the prompt."""
    engine = case.lab.edges[0].runtime.engine
    engine.rewind(0)
    options = FillOptions(score_anchors=False, max_tokens=case.lab.base.canvas)
    for _ in fill(engine, case.prompt_ids, anchors, options):
        pass


def _walk(case: Case, at: Situation) -> None:
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
    "sequential prefix": "pipeline: prefix (needs the full run)",
    "sequential aware": "pipeline: edge-aware",
}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    rows: list[Row] = [
        {"component": says, "N": len(answers.values(name)), "ms": answers.cell(name)}
        for name, says in ROWS.items()
    ]
    rows.append(
        {"component": "full run over pipeline, times", "N": len(answers), "ms": answers.cell("speedup")}
    )
    rows.append({"component": "cloud time saved, share", "N": len(answers), "ms": answers.cell("saved")})
    note = (
        f"Order by {ORDER}, batch of one, wall time, the best of {REPEATS}; they hold for this machine only."
    )
    return [Table("timing", "Timing of the components (Table 6)", ("component", "N", "ms"), rows, note)]


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    speed, saved = answers.cell("speedup"), answers.cell("saved")
    if speed is None or saved is None:
        return []
    return [
        Claim(
            "One after the other, the pipeline is 2.3 times as fast as the full run, and the cloud does "
            "89.7% less.",
            verdict(speed.low > 1, speed.high < 1, speed.n),
            f"Here {speed.mean:.2f} times [{speed.low:.2f}, {speed.high:.2f}], and {saved.mean:.1%} less "
            f"time in the cloud [{saved.low:.1%}, {saved.high:.1%}], N = {speed.n}.",
            "On one machine, where cloud and edge have the same processor. By step counts the cloud's "
            f"saving is {1 - about.paper_steps[0] / about.total_steps:.1%}, whatever the answer is worth.",
        )
    ]


PHASE = Phase("timing", "Timing", measure, tables, claims, limit=20)
