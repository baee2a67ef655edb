"""Phase `quantised`: answers and anchors of a quantised diffusion model (section 4.7).

Weights of the layers' linear maps are rounded to the nearest of 2^bits - 1 evenly spaced, symmetric levels,
by groups along the input, and computed with in full precision; embedding, norms, biases and head are
unchanged. So this measures the effect of rounding on the answers, not the gain of integer arithmetic, and it
is simpler than the formats in use (GGUF's Q4_K_M, which the paper ran, has nested scales and keeps some maps
wider).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from cloud_anchor.model.dream import DreamModel
from cloud_anchor.suite.conditions import ALONE, ANCHORS, FULL, PREFIX, committed, plan, prefix
from cloud_anchor.suite.lab import Case
from cloud_anchor.suite.phases.phase import About, Phase, Records
from cloud_anchor.suite.runs import run_once
from cloud_anchor.suite.tables import Answers, Claim, Row, Table, verdict

ORDER = "confidence"
BITS = (8, 4)
GROUP = 32


def round_to_nearest(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Weights [out, in] after rounding, in the same dtype. The last group of a row may be shorter."""
    highest = 2 ** (bits - 1) - 1
    rounded = []
    for part in torch.split(weight.float(), group, dim=1):
        scale = part.abs().amax(1, keepdim=True).clamp(min=1e-12) / highest
        rounded.append((part / scale).round().clamp(-highest, highest) * scale)
    return torch.cat(rounded, 1).to(weight.dtype)


@lru_cache(1)  # one copy at a time: each is as large as the model
def quantised(model: DreamModel, bits: int) -> DreamModel:
    """A copy of the model with rounded weights."""
    twin = DreamModel(
        copy.deepcopy(model.net),
        model.family,
        model.mask_id,
        model.eos_ids,
        f"{model.source}, int{bits}",
        model.plan,
    )
    twin.ends, twin._unusable = model.ends, model._unusable
    with torch.no_grad():
        for part in twin.net.model.layers.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.copy_(round_to_nearest(part.weight, bits))
    return twin


def overlap(one: Sequence[int], other: Sequence[int]) -> float:
    """Tokens in common, as multisets, as a share of the longer answer."""
    longest = max(len(one), len(other))
    return (Counter(one) & Counter(other)).total() / longest if longest else 1.0


def repetition(ids: Sequence[int], size: int = 4) -> float:
    """Share of an answer's n-grams of `size` tokens that repeat an earlier one."""
    runs = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def measure(case: Case) -> dict[str, Any]:
    lab = case.lab
    model = lab.pipeline.model
    reference = case.runs[ORDER].answer
    step = lab.paper_steps[0]
    rows = []
    for bits in (0, *BITS):
        if bits:
            (run,) = run_once(quantised(model, bits), [case.prompt_ids], plan(ORDER, lab.base), [step])
            twin = Case(lab, case.item, {ORDER: run})
        else:
            run, twin = case.runs[ORDER], case
        at = twin.situation(ORDER, step)
        answers = {
            FULL: run.answer,
            ANCHORS: case.fill(committed(at)).ids,
            PREFIX: case.fill(prefix(at)).ids,
        }
        for name, ids in answers.items():
            row = {"bits": bits, "condition": name, **case.score(ids, reference)}
            rows.append(row | {"overlap": overlap(ids, reference), "repeated": repetition(ids)})
    alone = case.alone().ids
    rows.append({"bits": 0, "condition": ALONE, **case.score(alone, reference)})
    rows[-1] |= {"overlap": overlap(alone, reference), "repeated": repetition(alone)}
    return {"answers": rows}


COLUMNS = {
    "F1": "f1",
    "edit": "edit",
    "token overlap": "overlap",
    "right": "right",
    "repeated runs of 4": "repeated",
}


def _weights(bits: int) -> str:
    return f"int{bits}" if bits else "as trained"


def tables(records: Records, about: About) -> list[Table]:
    rows: list[Row] = []
    for (bits, name), group in Answers.of(records).groups("bits", "condition"):
        row: Row = {"weights": _weights(bits), "condition": name, "N": len(group)}
        rows.append(row | {column: group.cell(metric) for column, metric in COLUMNS.items()})
    note = (
        f"All against the full run with the weights as trained; order by {ORDER}, anchors and prefix after "
        f"{about.share(about.paper_steps[0])} steps. Rounding to nearest, groups of {GROUP}, layers only. "
        "The paper: about 33% token overlap at 4 bits."
    )
    return [Table("quantised", "A quantised diffusion model (section 4.7)", tuple(rows[0]), rows, note)]


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    found = []
    for bits in BITS:
        rows = answers.where(bits=bits, condition=FULL)
        cell, repeated = rows.cell("overlap"), rows.cell("repeated")
        right = rows.less(answers.where(bits=0, condition=FULL), "right")
        if cell is None or repeated is None or right is None:
            continue
        loss = right.summary
        found.append(
            Claim(
                "Quantisation destroys the diffusion model's answers: about 33% token overlap at 4 bits "
                f"(here int{bits}).",
                verdict(cell.high < 0.5, cell.low > 0.5, cell.n),
                f"Token overlap {cell.mean:.2f} [{cell.low:.2f}, {cell.high:.2f}], repeated runs "
                f"{repeated.mean:.2f}, right answers {loss.mean:+.3f} [{loss.low:+.3f}, {loss.high:+.3f}], N "
                f"= {cell.n}.",
                "Called destroyed where less than half of the tokens are the same.",
                about.where(ORDER),
            )
        )
    return found


PHASE = Phase("quantised", "Quantised diffusion model", measure, tables, claims, limit=40)
