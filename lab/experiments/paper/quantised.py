"""Phase `quantised`: answers and anchors of a quantised diffusion model (section 4.7).

Weights of the layers' linear maps are rounded, and computed with in full precision; embedding, norms, biases
and head are unchanged. So this measures the effect of rounding on the answers, not the gain of integer
arithmetic. int8 and int4: to the nearest of 2^bits - 1 evenly spaced, symmetric levels, by groups along the
input. Q4_K and Q2_K: by GGUF's k-quants, with a scale and a minimum per block, themselves rounded by
super-blocks. The paper ran Q4_K_M, which is Q4_K with half of two kinds of maps in 6 bits: here all are Q4_K.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from cloud_anchor.model.dream import DreamModel
from lab.case import RunCase
from lab.conditions import ALONE, ANCHORS, FULL, PREFIX, committed, plan, prefix
from lab.experiment import About, Records, phase
from lab.runs import run_once
from lab.tables import Answers, Claim, Table, rows, verdict

ORDER = "confidence"
GROUP = 32


@dataclass(frozen=True)
class KQuant:
    """A k-quant with minima: integers of `bits` in blocks of `size` inputs, in super-blocks of `blocks`.

    In these the scales and the minima are integers of `scale_bits`, times one number each in half precision.
    """

    bits: int
    size: int
    blocks: int
    scale_bits: int


Q4_K, Q2_K = KQuant(4, 32, 8, 6), KQuant(2, 16, 16, 4)


def round_to_nearest(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Weights [out, in] after rounding, in the same dtype. The last group of a row may be shorter."""
    highest = 2 ** (bits - 1) - 1
    rounded = []
    for part in torch.split(weight.float(), group, dim=1):
        scale = part.abs().amax(1, keepdim=True).clamp(min=1e-12) / highest
        rounded.append((part / scale).round().clamp(-highest, highest) * scale)
    return torch.cat(rounded, 1).to(weight.dtype)


def k_rounded(weight: Tensor, form: KQuant) -> Tensor:
    """Weights [out, in] after rounding to a k-quant, in the same dtype. The last blocks may be shorter."""
    highest, levels = 2**form.bits - 1, 2**form.scale_bits - 1
    rounded = []
    for part in torch.split(weight.float(), form.size * form.blocks, dim=1):
        width = part.shape[1]
        blocks = torch.nn.functional.pad(part, (0, -width % form.size)).reshape(len(part), -1, form.size)
        scale, least = (_nested(values, levels) for values in fit_blocks(blocks, highest))
        integers = ((blocks + least) / scale.clamp(min=_LEAST)).round().clamp(0, highest)
        rounded.append((integers * scale - least).reshape(len(part), -1)[:, :width])
    return torch.cat(rounded, 1).to(weight.dtype)


_LEAST = 1e-9


def _nested(values: Tensor, levels: int) -> Tensor:
    """Values [rows, blocks, 1] as integers up to `levels` times one number per row, in half precision."""
    unit = (values.amax(1, keepdim=True) / levels).half().float()
    return (values / unit.clamp(min=_LEAST)).round().clamp(0, levels) * unit


def fit_blocks(blocks: Tensor, highest: int) -> tuple[Tensor, Tensor]:
    """Scales and negated minima, [rows, blocks, 1] and none below 0, of blocks [rows, blocks, size].

    Of some ways to round to the integers 0 to `highest`, each with its scale and minimum of least squares,
    the one of least error; larger weights count more.
    """
    low = blocks.amin(-1, keepdim=True).clamp(max=0)
    span = (blocks.amax(-1, keepdim=True) - low).clamp(min=_LEAST)
    heavy = blocks.square().mean(-1, keepdim=True).sqrt() + blocks.abs()
    scale, minimum = span / highest, low
    error = torch.full_like(low, torch.inf)
    for step in range(21):
        integers = ((blocks - low) * (highest - 1 + 0.1 * step) / span).round().clamp(0, highest)
        fits = _least_squares(blocks, integers, heavy)
        for s, m in (fits, (span / highest, low)):
            wrong = (heavy * (integers * s + m - blocks).square()).sum(-1, keepdim=True)
            better = (wrong < error) & (s > 0)
            scale, minimum = torch.where(better, s, scale), torch.where(better, m, minimum)
            error = torch.where(better, wrong, error)
    return scale, -minimum


def _least_squares(values: Tensor, integers: Tensor, heavy: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and minimum, at most 0, of values as scale * integers + minimum; the scale is 0 for no fit."""

    def total(of: Tensor) -> Tensor:
        return (heavy * of).sum(-1, keepdim=True)

    one, q, qq = total(torch.ones_like(values)), total(integers), total(integers * integers)
    x, qx = total(values), total(integers * values)
    spread = one * qq - q * q
    scale, minimum = (one * qx - q * x) / spread, (qq * x - q * qx) / spread
    scale = torch.where(minimum > 0, qx / qq, scale)
    sound = (spread > 0) & scale.isfinite()
    return torch.where(sound, scale, 0.0), torch.where(sound, minimum.clamp(max=0), 0.0)


WEIGHTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "int8": partial(round_to_nearest, bits=8),
    "int4": partial(round_to_nearest, bits=4),
    "Q4_K": partial(k_rounded, form=Q4_K),
    "Q2_K": partial(k_rounded, form=Q2_K),
}
"""Formats of the layers' weights, by their names in the tables."""

AS_TRAINED = "as trained"


@lru_cache(1)  # one copy at a time: each is as large as the model
def quantised(model: DreamModel, weights: str) -> DreamModel:
    """A copy of the model with rounded weights."""
    twin = copy.deepcopy(model)
    twin.source += f", {weights}"
    with torch.no_grad():
        for part in twin.net.model.layers.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.copy_(WEIGHTS[weights](part.weight))
    return twin


def overlap(one: Sequence[int], other: Sequence[int]) -> float:
    """Tokens in common, as multisets, as a share of the longer answer."""
    longest = max(len(one), len(other))
    return (Counter(one) & Counter(other)).total() / longest if longest else 1.0


def repetition(ids: Sequence[int], size: int = 4) -> float:
    """Share of an answer's n-grams of `size` tokens that repeat an earlier one."""
    runs = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def measure(case: RunCase) -> dict[str, Any]:
    lab = case.lab
    model = lab.pipeline.model
    assert isinstance(model, DreamModel)  # it has the layers whose weights are rounded
    reference = case.runs[ORDER].answer
    step = lab.paper_steps[0]
    found = []
    for weights in (AS_TRAINED, *WEIGHTS):
        if weights in WEIGHTS:
            (run,) = run_once(quantised(model, weights), [case.prompt_ids], plan(ORDER, lab.base), [step])
            twin = RunCase(lab, case.item, {ORDER: run})
        else:
            run, twin = case.runs[ORDER], case
        at = twin.situation(ORDER, step)
        answers = {
            FULL: run.answer,
            ANCHORS: case.fill(committed(at)).ids,
            PREFIX: case.fill(prefix(at)).ids,
        }
        for name, ids in answers.items():
            row = {"weights": weights, "condition": name, **case.score(ids, reference)}
            found.append(row | {"overlap": overlap(ids, reference), "repeated": repetition(ids)})
    alone = case.alone().ids
    found.append({"weights": AS_TRAINED, "condition": ALONE, **case.score(alone, reference)})
    found[-1] |= {"overlap": overlap(alone, reference), "repeated": repetition(alone)}
    return {"answers": found}


COLUMNS = {
    "F1": "f1",
    "edit": "edit",
    "token overlap": "overlap",
    "right": "right",
    "repeated runs of 4": "repeated",
}


def tables(records: Records, about: About) -> list[Table]:
    groups = Answers.of(records).by({"weights": "weights", "condition": "condition"})
    note = (
        f"All against the full run with the weights as trained; order by {ORDER}, anchors and prefix after "
        f"{about.share(about.paper_steps[0])} steps. Layers only; int8 and int4 round to nearest in groups "
        f"of {GROUP}. The paper: about 33% token overlap with Q4_K_M."
    )
    found = rows(groups, {"N": len, **COLUMNS})
    return [Table.of("quantised", "A quantised diffusion model (section 4.7)", found, note)]


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    found = []
    for weights in WEIGHTS:
        here = answers.where(weights=weights, condition=FULL)
        cell, repeated = here.cell("overlap"), here.cell("repeated")
        right = here.less(answers.where(weights=AS_TRAINED, condition=FULL), "right")
        if cell is None or repeated is None or right is None:
            continue
        loss = right.summary
        found.append(
            Claim(
                "Quantisation destroys the diffusion model's answers: about 33% token overlap at 4 bits "
                f"(here {weights}).",
                verdict(cell.high < 0.5, cell.low > 0.5, cell.n),
                f"Token overlap {cell.mean:.2f} [{cell.low:.2f}, {cell.high:.2f}], repeated runs "
                f"{repeated.mean:.2f}, right answers {loss.mean:+.3f} [{loss.low:+.3f}, {loss.high:+.3f}], N "
                f"= {cell.n}.",
                "Called destroyed where less than half of the tokens are the same.",
                about.where(ORDER),
            )
        )
    return found


EXPERIMENT = phase("quantised", "Quantised diffusion model", measure, tables, claims, limit=40)
