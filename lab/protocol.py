"""Protocols: which prompts a run has, and which of them each phase measures.

Responsible for the paper's nested sets (section 4.1) and for the suite's own. A phase measures the first
items of one list, so every smaller set is part of every larger one. Not responsible for reading items (see
`items`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cloud_anchor.errors import RequestError
from lab.experiment import DEFAULT_PROMPTS, Experiment
from lab.options import OWN
from lab.questions.items import Item, item_pool, load_items

PAPER_STEPS = 128

STRATA: Mapping[str, Mapping[str, int]] = {
    "mmlu": {"easy": 50, "hard": 50},
    "arc": {"easy": 50, "hard": 50},
    "gsm8k": {"easy": 20, "medium": 20, "hard": 20},
    "humaneval": {"mixed": 50},
}
"""The paper's 310 prompts, by benchmark and difficulty."""

EASY, OTHERS = 120, 190
"""The same of a source that the paper does not have: easy prompts, and the evaluation set of all others."""

ABLATION = 50
EVERYTHING = frozenset({"commits", "pearl"})
"""Phases A and C, which measure every prompt."""

SMALL = frozenset({"ablation", "gaps", "sizes"})
"""Phases on the ablation set (sections 4.3 to 4.5)."""


@dataclass(frozen=True)
class Protocol:
    """The items of a run, and by phase how many of them, the first ones, it measures; None for all."""

    name: str
    items: Sequence[Item]
    limits: Mapping[str, int | None]


def protocol(
    name: str, sources: Sequence[str], subset: int | None, seed: int, phases: Sequence[Experiment]
) -> Protocol:
    """The protocol of this name over these sources for some of the paper's experiments; raises RequestError.

    subset: of the suite's own the prompts in all; of the paper's the prompts per source, None for as many
    as in the paper.
    """
    if name == OWN:
        items = load_items(list(sources), subset or DEFAULT_PROMPTS, seed)
        return Protocol(name, items, {phase.name: phase.limit for phase in phases})
    main: list[Item] = []
    easy: list[Item] = []
    for source in sources:
        for item in _stratified(source, subset, seed):
            (easy if item.difficulty == "easy" else main).append(item)
    random.Random(seed).shuffle(main)
    limits: dict[str, int | None] = {}
    for phase in phases:
        own = len(main) if phase.limit is None else min(phase.limit, len(main))
        limits[phase.name] = min(ABLATION, len(main)) if phase.name in SMALL else own
        if phase.name in EVERYTHING:
            limits[phase.name] = None
    return Protocol(name, main + easy, limits)


def _stratified(source: str, subset: int | None, seed: int) -> list[Item]:
    """The paper's numbers of a benchmark by difficulty, or `subset` of it with its difficulties in turn."""
    name = source.partition("=")[0]
    pool = item_pool(source, 4 * (EASY + OTHERS), seed)
    if name in STRATA:
        wanted = STRATA[name]
        groups = [[i for i in pool if i.difficulty == level] for level in wanted]
        sizes = list(wanted.values())
    else:
        groups = [[i for i in pool if i.difficulty == "easy"], [i for i in pool if i.difficulty != "easy"]]
        wanted, sizes = {"easy": EASY, "other": OTHERS}, [EASY, OTHERS]
    if subset is not None:
        turns = [item for row in zip_longest(*groups) for item in row if item is not None]
        if len(turns) < subset:
            raise RequestError(f"{source}: expected {subset} prompts, found {len(turns)}. Lower --prompts.")
        return turns[:subset]
    for level, group, size in zip(wanted, groups, sizes, strict=True):
        if len(group) < size:
            raise RequestError(
                f"{source}: expected {size} {level} prompts for the paper's protocol, found {len(group)}. "
                "Give a file with more, or --prompts N for N prompts per source."
            )
    return [item for group, size in zip(groups, sizes, strict=True) for item in group[:size]]
