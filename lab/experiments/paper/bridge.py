"""Phase `bridge`: an autoregressive model's layers as a warm start of the diffusion model.

A layer is read through the model's head in two ways: along the answer that the whole model has written
(logit lens), and in an answer that the first layers write alone, before the model's own is known, which is
the saving that section 6 proposes. Its predictions from a threshold on are put on the canvas, at response
positions, before step 0. Compared with a cold start of equal compute (additional steps), and with a prefix of
as many of the autoregressive model's tokens. It can tell something only where the autoregressive model is
right more often than the edge model alone, which the table shows first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.state import State
from lab.autoregressive import Lens
from lab.case import NO_THINKER, Lab, RunCase
from lab.conditions import ALONE, plan
from lab.experiment import About, Records, phase
from lab.runs import Run, run_once
from lab.tables import Answers, Cell, Column, Label, Table, against, rows

ORDER = "confidence"
THRESHOLDS = (0.5, 0.8, 0.95)
CUT_OFF = 0.5
"""Share of the depth above which no layer is injected: from there on the saving is too small."""

ENOUGH, ACCURATE = 10, 0.9
"""Tokens of a viable configuration, and the share of them that the whole model writes as well."""

GIVEN, EARLY = "along its answer", "before its answer is known"
TEACHER = "the autoregressive model's answer"
COLD, COLD_MORE, WARM, PREFIX = "cold start", "cold start, equal compute", "warm start", "prefix start"


def needs(lab: Lab) -> str | None:
    return None if lab.thinker else NO_THINKER


def taps(layers: int) -> list[int]:
    """The layers that are injected: 1/16, 1/8, 1/4 and 1/2 of the depth, as in the published experiment."""
    found = {max(1, round(layers * share)) for share in (1 / 16, 1 / 8, 1 / 4, CUT_OFF)}
    return sorted(layer for layer in found if layer <= layers * CUT_OFF)


def extra_steps(work: float, prompt: int, lab: Lab) -> int:
    """Diffusion steps whose compute, in parameters times tokens, equals `work`."""
    dream = lab.pipeline.model.parameters
    return max(1, math.ceil(work / (dream * (prompt + lab.base.canvas))))


def run_from(
    case: RunCase, prompt: Sequence[int], tokens: Mapping[int, int], config: DenoiseConfig, stop: int
) -> Run:
    """A run from a canvas with `tokens` on it, as if they were committed in its first step."""
    model = case.lab.pipeline.masked_model
    state = State.start(model, [prompt], config)
    for position, token in tokens.items():
        state.ids[0, position] = token
        state.when[0, position] = 1
    (run,) = run_once(model, [prompt], config, [stop], state)
    return run


def measure(case: RunCase) -> dict[str, Any]:
    lab = case.lab
    assert lab.thinker is not None  # checked by `needs`
    full, written = case.runs[ORDER].answer, case.written
    layers: list[dict[str, Any]] = []
    starts: list[dict[str, Any]] = [
        {"start": name, **case.score(ids, full)}
        for name, ids in ((TEACHER, written), (ALONE, case.alone().ids))
    ]
    found = {"answers": starts, "layers": layers}
    if not written:
        return found
    prompt, depth, step = len(case.prompt_ids), lab.thinker.layers, lab.paper_steps[0]
    readings = [(GIVEN, lens) for lens in lab.thinker.lenses(case.prompt_ids, written)]
    readings += [
        (EARLY, lab.thinker.write_early(case.prompt_ids, len(written), layer)) for layer in taps(depth)
    ]
    starts.append({"start": COLD} | _started(case, {}, step))
    for source, lens in readings:
        labels = {"read": source, "layer": lens.layer}
        layers.append(labels | _agreement(lens, written, full))
        if lens.layer not in (*taps(depth), depth):
            continue
        # Its whole answer goes through the model twice, for writing and for the lens; an early layer's once.
        work = 2 * len(written) + prompt if source == GIVEN else (len(lens.ids) + prompt) * lens.layer / depth
        extra = extra_steps(lab.thinker.parameters * work, prompt, lab)
        starts.append(labels | {"start": COLD_MORE, "extra": extra} | _started(case, {}, step + extra))
        starts += [labels | row for row in _warm(case, lens, step, whole=lens.layer == depth)]
    return found


def _agreement(lens: Lens, written: Sequence[int], full: Sequence[int]) -> dict[str, float]:
    """How far a layer says what the model writes, and what the diffusion model writes there."""
    size = max(1, len(lens.ids))
    return {
        "own": sum(a == b for a, b in zip(lens.ids, written, strict=False)) / size,
        "dream": sum(a == b for a, b in zip(lens.ids, full, strict=False)) / size,
        "confidence": sum(lens.probabilities) / size,
    }


def _warm(case: RunCase, lens: Lens, step: int, *, whole: bool) -> Iterator[dict[str, Any]]:
    """Rows by threshold; whole: also from a prefix of as many of the model's own tokens."""
    written = case.written
    for threshold in THRESHOLDS:
        sure = {
            p: token
            for p, (token, chance) in enumerate(zip(lens.ids, lens.probabilities, strict=True))
            if chance >= threshold and case.contract.is_ordinary(token)
        }
        hits = sum(p < len(written) and written[p] == t for p, t in sure.items())
        row = {"start": WARM, "threshold": threshold, "injected": len(sure), "hits": hits}
        yield row | _started(case, sure, step)
        if whole:
            first = dict(enumerate(written[: len(sure)]))
            row = {"start": PREFIX, "threshold": threshold, "injected": len(first)}
            yield row | _started(case, first, step)


def _started(case: RunCase, tokens: Mapping[int, int], steps: int) -> dict[str, float]:
    """Scores of the predicted answer after `steps` steps from a canvas with `tokens` on it."""
    steps = min(steps, case.lab.base.total_steps)
    config = replace(plan(ORDER, case.lab.base), steps=steps)
    answer = run_from(case, case.prompt_ids, tokens, config, steps).at(steps).predicted_answer
    return case.score(answer, case.runs[ORDER].answer)


def viable(group: Answers) -> Cell:
    """As in the published experiment: enough tokens over all items, and most are what the model writes."""
    tokens, hits = sum(group.values("injected")), sum(group.values("hits"))
    if group.rows[0]["start"] != WARM:
        return None
    return "yes" if tokens >= ENOUGH and hits >= ACCURATE * tokens else "no"


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    read: dict[str, Label] = {"read": "read", "layer": "layer"}
    said = {"own": "says what the model writes", "dream": "says what the diffusion model writes there"}
    columns: dict[str, Column] = {"N": len, **{says: metric for metric, says in said.items()}}
    depth = rows(Answers.of(records, "layers").by(read), columns | {"confidence": "confidence"})
    columns = {"N": len, "viable": viable, "injected": "injected", "F1": "f1", "right": "right"}
    columns["right less equal compute"] = against(answers, "right", "read", "layer", start=COLD_MORE)
    starts = rows(
        answers.by({"start": "start", **read, "p >=": "threshold"}), columns | {"steps more": "extra"}
    )
    note = (
        f"Autoregressive model: {about.thinker}, {about.thinker_parameters / 1e6:.2f} million parameters. "
        f"Every start is followed by {about.paper_steps[0]} steps, and the current predictions are the "
        "answer; equal compute is in parameters times tokens. Layers are read through the model's head: "
        f"{GIVEN}, or {EARLY}, in an answer that the first layers write alone; no layer above "
        f"{CUT_OFF:.0%} of the depth but the last is injected. Viable: at least {ENOUGH} tokens over all "
        f"items, {ACCURATE:.0%} of them what the whole model writes. F1 against the cold full run, right "
        "against the ground truth."
    )
    return [
        Table.of("bridge-layers", "Bridge: each layer through the head", depth),
        Table.of("bridge", "Bridge: tokens on the canvas before step 0", starts, note),
    ]


EXPERIMENT = phase("bridge", "Layer-depth bridge", measure, tables, limit=40, needs=needs)
