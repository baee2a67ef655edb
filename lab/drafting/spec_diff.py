"""Phase `specdiff`: the diffusion model drafts for the autoregressive one (SpecDiff, arXiv 2408.05636).

gamma tokens drafted in T denoising steps, over the paper's grid, on an autoregressive target (--thinker):
accepted tokens, passes, seconds and model FLOPs against the target alone and against the first edge model as
the draft model (standard speculative decoding). Greedy, so that every text has to be the target's own; that
it is, is measured as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from statistics import mean
from typing import Any

from lab.case import RunCase, needs_thinker
from lab.drafting.diffusion_drafter import DiffusionDrafter
from lab.drafting.speculation import DraftModel, speculate
from lab.drafting.torch_engine import TorchEngine
from lab.experiment import About, phase
from lab.tables import LENGTHS, Answers, Column, Row, Table, rows

GAMMAS = (5, 10, 15, 20, 40)
STEPS = (1, 2, 3, 5, 10)
DRAFTED = sorted({*STEPS, *GAMMAS})
"""Tokens of the draft model's drafts. It writes one a pass, so these have SpecDiff's T among them."""

ALONE, DIFFUSION, AUTOREGRESSIVE = "target alone", "diffusion", "autoregressive"


def grid() -> Iterator[tuple[int, int]]:
    """gamma and T of every cell; more steps than tokens are no other draft."""
    yield from ((gamma, steps) for gamma in GAMMAS for steps in STEPS if steps <= gamma)


def measure(case: RunCase) -> list[dict[str, Any]]:
    lab = case.lab
    assert lab.thinker is not None  # checked by `needs_thinker`
    target, model, edge = lab.thinker, lab.pipeline.masked_model, lab.edges[0]
    engine = TorchEngine(target.net)
    room = min(lab.base.canvas, engine.context - len(case.prompt_ids))
    asked = (engine, case.prompt_ids, case.contract.eos_ids, room)
    speculate(*asked)  # the first run of a text is slower, and it is what the others are compared with
    alone = speculate(*asked)
    alone_flops = 2.0 * target.parameters * alone.computed
    common = {"length": len(alone.ids), "alone_passes": alone.passes}
    right = case.score(alone.ids, alone.ids)["right"]
    rows = [{"drafter": ALONE, "gamma": 0, "steps": 0, **common, "right": right, "same": 1.0}]

    def row(kind: str, gamma: int, steps: int, draft: DiffusionDrafter | DraftModel, parameters: int) -> None:
        found = speculate(*asked, draft, gamma)
        flops = 2.0 * target.parameters * found.computed + 2.0 * parameters * draft.computed
        rows.append(
            {
                "drafter": kind,
                "gamma": gamma,
                "steps": steps,
                **common,
                "same": float(found.ids == alone.ids),
                "right": case.score(found.ids, alone.ids)["right"],
                "alpha": found.accepted / found.drafted if found.drafted else None,
                "accepted": len(found.ids) / found.passes,
                "passes": found.passes,
                "faster": alone.seconds / found.seconds,
                "cheaper": alone_flops / flops,
            }
        )

    plan = replace(lab.base, steps=None, order="confidence", commit="quota", stop=None)
    for gamma, steps in grid():
        config = replace(plan, canvas=gamma, total_steps=steps)
        row(DIFFUSION, gamma, steps, DiffusionDrafter(model, config, engine.vocab), model.parameters)
    for gamma in DRAFTED:
        edge.runtime.engine.rewind(0)
        row(AUTOREGRESSIVE, gamma, gamma, DraftModel(edge.runtime.engine), edge.parameters)
    return rows


def tables(answers: Answers, about: About) -> list[Table]:
    if not len(answers):
        return []
    columns: dict[str, Column] = {
        "N": len,
        "the target's text": "same",
        "right": "right",
        "alpha": "alpha",
        "tokens a pass": "accepted",
        "target passes": lambda group: group.cell("passes") or group.cell("alone_passes"),
        "times as fast": "faster",
        "times fewer FLOPs": "cheaper",
    }
    cells = rows(answers.by({name: name for name in ("drafter", "gamma", "steps")}), columns)
    note = (
        "Greedy. alpha: share of the drafted tokens accepted; tokens a pass: of the target, its own counted. "
        "Seconds are of this machine, the target and the diffusion model in PyTorch without a cache of the "
        "latter's text, the autoregressive draft model on ONNX Runtime; FLOPs are 2 * parameters * tokens "
        "run. Target: "
        f"{about.thinker} ({about.thinker_parameters / 1e6:.2f} million parameters)."
    )
    equal = (
        "As many passes of either drafter for each pass of the target: T denoising steps, or T tokens of the "
        "draft model, which gives at most T + 1 tokens a pass of the target, however large it is. gamma: "
        "that with the most tokens a pass, chosen on the same answers. less: paired, in target passes."
    )
    return [
        Table.of("specdiff", "SpecDiff: gamma drafted tokens in T steps", cells, note),
        Table.of(
            "specdiff-equal", "SpecDiff and a draft model at equal passes", list(equal_passes(answers)), equal
        ),
    ]


def equal_passes(answers: Answers) -> Iterator[Row]:
    """SpecDiff at T steps beside drafts of T tokens, by T and length of the answer."""
    groups = {"every answer": answers}
    for name, (low, high) in LENGTHS.items():
        groups[f"{name} tokens"] = Answers([row for row in answers.rows if low <= row["length"] < high])
    for steps, (name, here) in product(STEPS, groups.items()):
        theirs = here.where(drafter=AUTOREGRESSIVE, gamma=steps)
        cells = [cell for _, cell in here.where(drafter=DIFFUSION, steps=steps).groups("gamma")]
        if not cells or not len(theirs):
            continue
        ours = max(cells, key=lambda cell: mean(cell.values("accepted")))
        yield {
            "T": steps,
            "answers of": name,
            "N": len(ours),
            "gamma": ours.rows[0]["gamma"],
            "SpecDiff: tokens a pass": ours.cell("accepted"),
            "draft model: tokens a pass": theirs.cell("accepted"),
            "SpecDiff: target passes": ours.cell("passes"),
            "draft model: target passes": theirs.cell("passes"),
            "less": ours.less(theirs, "passes"),
        }


EXPERIMENT = phase("specdiff", "SpecDiff", measure, tables, limit=20, needs=needs_thinker)
