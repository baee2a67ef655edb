"""Phase `bridge`: an autoregressive model's layers as a warm start of the diffusion model.

The autoregressive model writes its answer; each of its layers gives a prediction per position through the
model's head (logit lens). A layer's predictions from a threshold on are put on the canvas, at response
positions, before step 0. Compared with a cold start of equal compute (additional steps), and with a prefix of
as many of the autoregressive model's tokens.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from cloud_anchor.sampling.state import State
from cloud_anchor.suite.autoregressive import Autoregressive
from cloud_anchor.suite.conditions import plan
from cloud_anchor.suite.lab import Case, Lab
from cloud_anchor.suite.phases.phase import About, Phase, Records
from cloud_anchor.suite.runs import run_once
from cloud_anchor.suite.statistics import spearman
from cloud_anchor.suite.tables import Answers, Claim, Row, Table, compare, more, verdict

ORDER = "confidence"
THRESHOLDS = (0.5, 0.8, 0.95)
COLD, COLD_MORE, WARM, PREFIX = "cold start", "cold start, equal compute", "warm start", "prefix start"

STRUCTURE = frozenset(
    "a an the and or but if then so because as of in on at to from by for with without into over under is "
    "are was were be been has have had do does did it its this that these those there here each every all "
    "any some no not i you he she we they his her their our your my which who what when where how than also "
    "let us can will would should may def return else elif while import lambda".split()
)
"""Function words of sentences and programs, which carry no fact."""


@lru_cache(8192)
def structural(text: str) -> bool:
    """True for punctuation, white space and words of `STRUCTURE`."""
    word = text.strip().strip(string.punctuation).lower()
    return not word or word in STRUCTURE


def needs(lab: Lab) -> str | None:
    return None if lab.thinker else lab.missing["thinker"]


def extra_steps(model: Autoregressive, tokens: int, prompt: int, lab: Lab) -> int:
    """Diffusion steps whose compute, in parameters times tokens, equals the autoregressive model's.

    tokens: of its answer, which go through it twice: for writing and for the lens. prompt: its tokens.
    """
    dream = int(sum(p.numel() for p in lab.pipeline.model.net.parameters()))
    work = model.parameters * (2 * tokens + prompt)
    return max(1, math.ceil(work / (dream * (prompt + lab.base.canvas))))


def measure(case: Case) -> dict[str, Any]:
    lab = case.lab
    assert lab.thinker is not None  # checked by `needs`
    written = lab.thinker.write(case.prompt_ids, lab.base.canvas - 1)
    if not written:
        return {"answers": [], "layers": []}
    lenses = lab.thinker.lenses(case.prompt_ids, written)
    full = case.runs[ORDER].answer
    step = lab.paper_steps[0]
    extra = extra_steps(lab.thinker, len(written), len(case.prompt_ids), lab)
    kinds = [structural(case.text([token])) for token in written]
    layers: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for lens in lenses:
        for name, wanted in (("all", None), ("structure", True), ("content", False)):
            places = [p for p, kind in enumerate(kinds) if wanted is None or kind == wanted]
            if not places:
                continue
            hits = [lens.ids[p] == written[p] for p in places]
            dream = [p < len(full) and lens.ids[p] == full[p] for p in places]
            layers.append(
                {
                    "layer": lens.layer,
                    "kind": name,
                    "own": sum(hits) / len(hits),
                    "dream": sum(dream) / len(dream),
                    "confidence": sum(lens.probabilities[p] for p in places) / len(places),
                }
            )
        for threshold in THRESHOLDS:
            sure = {
                p: token
                for p, (token, chance) in enumerate(zip(lens.ids, lens.probabilities, strict=True))
                if chance >= threshold and case.contract.is_ordinary(token)
            }
            row = {"layer": lens.layer, "threshold": threshold, "condition": WARM, "injected": len(sure)}
            rows.append(row | case.score(_start(case, sure, step), full))
            if lens.layer == lab.thinker.layers:
                first = dict(enumerate(written[: len(sure)]))
                row = {"layer": 0, "threshold": threshold, "condition": PREFIX, "injected": len(first)}
                rows.append(row | case.score(_start(case, first, step), full))
    cold = case.runs[ORDER].at(step).predicted_answer
    more = _start(case, {}, min(step + extra, lab.base.total_steps))
    for name, ids in ((COLD, cold), (COLD_MORE, more)):
        rows.append({"layer": 0, "threshold": 0, "condition": name, "injected": 0, **case.score(ids, full)})
    return {"answers": rows, "layers": layers, "extra_steps": extra}


def _start(case: Case, tokens: Mapping[int, int], steps: int) -> list[int]:
    """The predicted answer after `steps` steps from a canvas with `tokens` on it."""
    config = replace(plan(ORDER, case.lab.base), steps=steps)
    model = case.lab.pipeline.model
    state = State.start(model, [case.prompt_ids], config)
    for position, token in tokens.items():
        state.ids[0, position] = token
    (run,) = run_once(model, [case.prompt_ids], config, [steps], state)
    return run.at(steps).predicted_answer


def tables(records: Records, about: About) -> list[Table]:
    layers, answers = Answers.of(records, "layers"), Answers.of(records)
    depth: list[Row] = []
    for (layer, kind), group in layers.groups("layer", "kind"):
        row: Row = {"layer": layer, "tokens": kind, "N": len(group)}
        row["says what the model writes"] = group.cell("own")
        row["says what the diffusion model writes there"] = group.cell("dream")
        row["confidence"] = group.cell("confidence")
        depth.append(row)
    starts: list[Row] = []
    for (condition, layer, threshold), group in answers.groups("condition", "layer", "threshold"):
        row = {"start": condition, "layer": layer or None, "p >=": threshold or None, "N": len(group)}
        row |= {"injected": group.cell("injected"), "F1": group.cell("f1"), "edit": group.cell("edit")}
        starts.append(row | {"right": group.cell("right")})
    extra = Answers([{"extra": record["extra_steps"]} for record in records if "extra_steps" in record]).cell(
        "extra"
    )
    step = about.paper_steps[0]
    note = (
        f"Autoregressive model: {about.thinker}, {about.thinker_parameters / 1e6:.2f} million parameters. "
        f"Every start is followed by {step} steps, and the current predictions are the answer; equal compute "
        f"is {extra.mean if extra else 0:.1f} steps more. F1 against the cold full run, right against the "
        "ground truth."
    )
    return [
        Table(
            "bridge-layers", "Bridge: each layer through the head", tuple(depth[0]) if depth else (), depth
        ),
        Table(
            "bridge",
            "Bridge: tokens on the canvas before step 0",
            tuple(starts[0]) if starts else (),
            starts,
            note,
        ),
    ]


def claims(records: Records, about: About) -> list[Claim]:
    answers, layers = Answers.of(records), Answers.of(records, "layers").where(kind="all")
    if not len(answers):
        return []
    cold = answers.where(condition=COLD_MORE)
    last = max(row["layer"] for row in layers.rows)
    # Fixed before the results were seen: the deepest and the middle layer, at the middle threshold.
    found = []
    for layer in dict.fromkeys((max(1, last // 2), last)):
        warm = answers.where(condition=WARM, layer=layer, threshold=THRESHOLDS[1])
        sentence, result = compare(f"layer {layer}", warm, COLD_MORE, cold, "right")
        fidelity, _ = compare(f"layer {layer}", warm, COLD_MORE, cold)
        found.append(
            Claim(
                f"Layer {layer} of {last} seeds the diffusion model better than its own steps do (p >= "
                f"{THRESHOLDS[1]}).",
                more(result),
                f"{sentence}.",
                f"{fidelity}.",
                about.where(ORDER, about.paper_steps[0]),
            )
        )
    rho = spearman([float(row["layer"]) for row in layers.rows], layers.values("own"))
    found.append(
        Claim(
            "Deeper layers say more of what the model will write.",
            verdict(rho.rho > 0 and rho.p < 0.05, rho.rho <= 0 and rho.p < 0.05, len(records)),
            f"Spearman's rho of depth and agreement {rho.rho:.2f}, p {rho.p:.2g}, over {rho.n} pairs of "
            "layer and item.",
        )
    )
    return found


PHASE = Phase("bridge", "Layer-depth bridge", measure, tables, claims, limit=40, needs=needs)
