"""Phase `quantised`: answers and anchors of a quantised diffusion model (section 4.7).

Weights of the layers' linear maps are rounded, and computed with in full precision; embedding, norms, biases
and head are unchanged. So this measures the effect of rounding on the answers, not the gain of integer
arithmetic. Rounded to the nearest of 2^bits - 1 evenly spaced, symmetric levels, by groups along the input,
which is coarser than the paper's Q4_K_M.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from cloud_anchor.model.dream import DreamModel
from lab.case import RunCase
from lab.conditions import ALONE, ANCHORS, FULL, PREFIX, committed, plan, prefix
from lab.experiment import About, phase
from lab.runs import run_once
from lab.store import Record
from lab.tables import Answers, Column, Table, against

ORDER = "confidence"
GROUP = 32
AS_TRAINED = "as trained"
WEIGHTS = {"int8": 8, "int4": 4}
"""Bits of the layers' weights, by their names in the table."""


def round_to_nearest(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Weights [out, in] after rounding, in the same dtype. The last group of a row may be shorter."""
    highest = 2 ** (bits - 1) - 1
    rounded = []
    for part in torch.split(weight.float(), group, dim=1):
        scale = part.abs().amax(1, keepdim=True).clamp(min=1e-12) / highest
        rounded.append((part / scale).round().clamp(-highest, highest) * scale)
    return torch.cat(rounded, 1).to(weight.dtype)


@lru_cache(1)  # one copy at a time: each is as large as the model
def quantised(model: DreamModel, weights: str) -> DreamModel:
    """A copy of the model with rounded weights."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for part in twin.net.model.layers.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.copy_(round_to_nearest(part.weight, WEIGHTS[weights]))
    return twin


def overlap(one: Sequence[int], other: Sequence[int]) -> float:
    """Tokens in common, as multisets, as a share of the longer answer."""
    longest = max(len(one), len(other))
    return (Counter(one) & Counter(other)).total() / longest if longest else 1.0


def repetition(ids: Sequence[int], size: int = 4) -> float:
    """Share of an answer's n-grams of `size` tokens that repeat an earlier one."""
    runs = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def measure(case: RunCase) -> Iterator[Record]:
    lab, run, step = case.lab, case.runs[ORDER], case.lab.paper_steps[0]
    model, reference = lab.pipeline.model, run.answer
    assert isinstance(model, DreamModel)  # it has the layers whose weights are rounded
    for weights in (AS_TRAINED, *WEIGHTS):
        if weights in WEIGHTS:
            (run,) = run_once(quantised(model, weights), [case.prompt_ids], plan(ORDER, lab.base), [step])
        at = case.at(run.at(step), run.answer)
        filled = {
            name: case.fill(select(at)).ids for name, select in ((ANCHORS, committed), (PREFIX, prefix))
        }
        for name, ids in {FULL: run.answer, **filled, ALONE: case.alone().ids}.items():
            row = {"weights": weights, "condition": name} | case.score(ids, reference)
            yield row | {"overlap": overlap(ids, reference), "repeated": repetition(ids)}


def tables(answers: Answers, about: About) -> Iterator[Table]:
    columns: dict[str, Column] = {
        "N": len,
        "F1": "f1",
        "token overlap": "overlap",
        "right": "right",
        "repeated runs of 4": "repeated",
        "right less as trained": against(answers, "right", "condition", weights=AS_TRAINED),
    }
    note = (
        f"All against the full run with the weights as trained; order by {ORDER}, anchors and prefix after "
        f"{about.share(about.paper_steps[0])} steps. Layers only, rounded in groups of {GROUP}. The paper: "
        "about 33% token overlap with Q4_K_M."
    )
    labels = {"weights": "weights", "condition": "condition"}
    yield answers.table("quantised", "A quantised diffusion model (section 4.7)", labels, columns, note)


EXPERIMENT = phase("quantised", "Quantised diffusion model", measure, tables, limit=40)
