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
from collections.abc import Iterator, Mapping
from dataclasses import replace

from cloud_anchor.sampling.state import State
from lab.autoregressive import Lens
from lab.case import RunCase, needs_thinker
from lab.conditions import ALONE, plan
from lab.experiment import About, phase
from lab.runs import run_once
from lab.store import Record
from lab.tables import Answers, Cell, Column, Label, Table, against

ORDER = "confidence"
THRESHOLDS = (0.5, 0.8, 0.95)
CUT_OFF = 0.5
"""Share of the depth above which no layer is injected: from there on the saving is too small."""

ENOUGH, ACCURATE = 10, 0.9
"""Tokens of a viable configuration, and the share of them that the whole model writes as well."""

GIVEN, EARLY = "along its answer", "before its answer is known"
TEACHER = "the autoregressive model's answer"
COLD, COLD_MORE, WARM, PREFIX = "cold start", "cold start, equal compute", "warm start", "prefix start"


def taps(layers: int) -> list[int]:
    """The layers that are injected: 1/16, 1/8, 1/4 and 1/2 of the depth, as in the published experiment."""
    found = {max(1, round(layers * share)) for share in (1 / 16, 1 / 8, 1 / 4, CUT_OFF)}
    return sorted(layer for layer in found if layer <= layers * CUT_OFF)


def measure(case: RunCase) -> Iterator[Record]:
    lab, written, full = case.lab, case.written, case.runs[ORDER].answer
    thinker, prompt, step = lab.thinker, case.prompt_ids, lab.paper_steps[0]
    assert thinker is not None  # checked by `needs_thinker`
    for name, ids in ((TEACHER, written), (ALONE, case.alone().ids)):
        yield {"start": name} | case.score(ids, full)
    if not written:
        return
    yield {"start": COLD} | _started(case, {}, step)
    readings = [(GIVEN, lens) for lens in thinker.lenses(prompt, written)]
    readings += [(EARLY, thinker.write_early(prompt, len(written), layer)) for layer in taps(thinker.layers)]
    for source, lens in readings:
        labels, size = {"read": source, "layer": lens.layer}, max(1, len(lens.ids))
        yield labels | {
            "own": sum(a == b for a, b in zip(lens.ids, written, strict=False)) / size,
            "dream": sum(a == b for a, b in zip(lens.ids, full, strict=False)) / size,
            "confidence": sum(lens.probabilities) / size,
        }
        if lens.layer not in (*taps(thinker.layers), thinker.layers):
            continue
        # Its whole answer goes through the model twice, for writing and for the lens; an early layer's once.
        tokens = 2 * len(written) + len(prompt) if source == GIVEN else len(lens.ids) + len(prompt)
        work = thinker.parameters * tokens * (1 if source == GIVEN else lens.layer / thinker.layers)
        extra = max(1, math.ceil(work / (lab.pipeline.model.parameters * (len(prompt) + lab.base.canvas))))
        yield labels | {"start": COLD_MORE, "extra": extra} | _started(case, {}, step + extra)
        yield from (labels | row for row in _warm(case, lens, step, whole=lens.layer == thinker.layers))


def _warm(case: RunCase, lens: Lens, step: int, *, whole: bool) -> Iterator[Record]:
    """Rows by threshold; whole: also from a prefix of as many of the model's own tokens."""
    written = case.written
    for threshold in THRESHOLDS:
        sure = {
            p: token
            for p, (token, chance) in enumerate(zip(lens.ids, lens.probabilities, strict=True))
            if chance >= threshold and case.contract.is_ordinary(token)
        }
        hits = sum(p < len(written) and written[p] == t for p, t in sure.items())
        row: Record = {"threshold": threshold, "injected": len(sure)}
        yield {"start": WARM, "hits": hits} | row | _started(case, sure, step)
        if whole:
            first = dict(enumerate(written[: len(sure)]))
            row["injected"] = len(first)
            yield {"start": PREFIX} | row | _started(case, first, step)


def _started(case: RunCase, tokens: Mapping[int, int], steps: int) -> dict[str, float]:
    """Scores of the predicted answer after `steps` steps from a canvas with `tokens` on it, as if they were
    committed in its first step.
    """
    steps = min(steps, case.lab.base.total_steps)
    model, config = case.lab.pipeline.masked_model, replace(plan(ORDER, case.lab.base), steps=steps)
    state = State.start(model, [case.prompt_ids], config)
    for position, token in tokens.items():
        state.ids[0, position] = token
        state.when[0, position] = 1
    (run,) = run_once(model, [case.prompt_ids], config, [steps], state)
    return case.score(run.at(steps).predicted_answer, case.runs[ORDER].answer)


def viable(group: Answers) -> Cell:
    """As in the published experiment: enough tokens over all items, and most are what the model writes."""
    tokens, hits = sum(group.values("injected")), sum(group.values("hits"))
    if group.rows[0]["start"] != WARM:
        return None
    return "yes" if tokens >= ENOUGH and hits >= ACCURATE * tokens else "no"


def tables(answers: Answers, about: About) -> Iterator[Table]:
    read: dict[str, Label] = {"read": "read", "layer": "layer"}
    columns: dict[str, Column] = {
        "N": len,
        "says what the model writes": "own",
        "says what the diffusion model writes there": "dream",
        "confidence": "confidence",
    }
    layers = Answers([row for row in answers.rows if "start" not in row])
    yield layers.table("bridge-layers", "Bridge: each layer through the head", read, columns)
    starts = Answers([row for row in answers.rows if "start" in row])
    columns = {"N": len, "viable": viable, "injected": "injected", "F1": "f1", "right": "right"}
    columns["right less equal compute"] = against(starts, "right", "read", "layer", start=COLD_MORE)
    columns["steps more"] = "extra"
    note = (
        f"Autoregressive model: {about.thinker}, {about.thinker_parameters / 1e6:.2f} million parameters. "
        f"Every start is followed by {about.paper_steps[0]} steps, and the current predictions are the "
        "answer; equal compute is in parameters times tokens. Layers are read through the model's head: "
        f"{GIVEN}, or {EARLY}, in an answer that the first layers write alone; no layer above "
        f"{CUT_OFF:.0%} of the depth but the last is injected. Viable: at least {ENOUGH} tokens over all "
        f"items, {ACCURATE:.0%} of them what the whole model writes. F1 against the cold full run, right "
        "against the ground truth."
    )
    labels: dict[str, Label] = {"start": "start", **read, "p >=": "threshold"}
    yield starts.table("bridge", "Bridge: tokens on the canvas before step 0", labels, columns, note)


EXPERIMENT = phase("bridge", "Layer-depth bridge", measure, tables, limit=40, needs=needs_thinker)
