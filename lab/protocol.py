"""Protocols: which prompts a run has, and which of them each phase measures.

Responsible for the paper's nested sets (section 4.1) and for the laboratory's own. A phase measures the first
items of one list, so every smaller set is part of every larger one. Not responsible for reading items (see
`items`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

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
SMALL = frozenset({"ablation", "gaps", "sizes"})
"""Phases on the ablation set (sections 4.3 to 4.5)."""
EVERYTHING = frozenset({"commits", "pearl"})
"""Phases A and C, which measure every prompt."""

Limits = Mapping[str, int | None]
"""By phase how many of the items, the first ones, it measures; None for all."""


def protocol(
    name: str, sources: Sequence[str], subset: int | None, seed: int, phases: Sequence[Experiment]
) -> tuple[Sequence[Item], Limits]:
    """The items of a protocol over these sources for some of the paper's experiments; raises RequestError.

    subset: of the laboratory's own the prompts in all; of the paper's the prompts per source, None for as
    many as in the paper.
    """
    if name == OWN:
        limits = {phase.name: phase.limit for phase in phases}
        return load_items(list(sources), subset or DEFAULT_PROMPTS, seed), limits
    items = [item for source in sources for item in _stratified(source, subset, seed)]
    main = [item for item in items if item.difficulty != "easy"]
    random.Random(seed).shuffle(main)

    def limit(phase: Experiment) -> int | None:
        if phase.name in EVERYTHING:
            return None
        return min(len(main), ABLATION if phase.name in SMALL else phase.limit or len(main))

    easy = [item for item in items if item.difficulty == "easy"]
    return main + easy, {phase.name: limit(phase) for phase in phases}


def _stratified(source: str, subset: int | None, seed: int) -> list[Item]:
    """The paper's numbers of a benchmark by difficulty, or `subset` of it with its difficulties in turn."""
    wanted = STRATA.get(source.partition("=")[0], {"easy": EASY, "other": OTHERS})
    groups: dict[str, list[Item]] = {level: [] for level in wanted}
    for item in item_pool(source, 4 * (EASY + OTHERS), seed):
        level = item.difficulty if item.difficulty in wanted else "other"
        groups.setdefault(level, []).append(item)
    if subset is not None:
        wanted, turns = (
            {"any": subset},
            chain.from_iterable(zip_longest(*(groups[level] for level in wanted))),
        )
        groups = {"any": [item for item in turns if item is not None]}
    for level, size in wanted.items():
        if len(groups[level]) < size:
            raise RequestError(
                f"{source}: expected {size} {level} prompts for the paper's protocol, found "
                f"{len(groups[level])}. Give a file with more, or a lower --prompts N for each source."
            )
    return [item for level, size in wanted.items() for item in groups[level][:size]]
