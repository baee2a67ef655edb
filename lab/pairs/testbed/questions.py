"""Questions of the testbed for training and for testing.

Responsible for who appears in them and for the split between both. Not responsible for the kinds themselves.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lab.pairs.problem import Draw, Problem
from lab.pairs.testbed.entity import Role
from lab.pairs.testbed.kinds import KINDS
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.scene import NothingFitsError, Scene

_ATTEMPTS = 500
HASTY = 0.1


def _training(library: Library, kind: str, rng: random.Random, knows: bool) -> Problem:
    return KINDS[kind](Scene(library, rng, learner="cloud" if knows else "edge"))


def training_families(library: Library) -> Mapping[str, Draw]:
    """The kinds as `lab.pairs.batches` draws them; without knowledge, of the edge's world."""
    return {kind: partial(_training, library, kind) for kind in KINDS}


def hastily(draw: Draw, rng: random.Random, knows: bool) -> Problem:
    """As many people type: one prompt in ten without capitals and without its last mark."""
    problem = draw(rng, knows)
    if rng.random() >= HASTY or problem.family in ("choice", "function"):
        return problem
    return replace(problem, prompt=problem.prompt.lower().rstrip(".?"))


def held_out_question(library: Library, kind: str, rng: random.Random, role: Role = "cloud") -> Problem:
    """A question that no training has: in a held-out phrasing, and held out itself where its kind is split.

    role: whose entities it is about; "neither" for a question to which no model can know the answer.
    """
    for _ in range(_ATTEMPTS):
        try:
            problem = KINDS[kind](Scene(library, rng, cast=(role,), learner=None, held_out=True))
        except NothingFitsError:
            continue
        if problem.held_out or not problem.split or role != "cloud":
            return problem
    raise NothingFitsError(f"{kind}: expected a held-out question about entities of {role}, found none")


def held_out_questions(
    library: Library, count: int, seed: int = 0, role: Role = "cloud", kinds: Sequence[str] = ()
) -> list[Problem]:
    """`count` test questions with distinct prompts, the kinds in turn, by default all; the same for the same
    seed and kinds.
    """
    rng = random.Random("/".join(["testbed", str(seed), role, *kinds]))
    if not kinds:
        kinds = [kind for kind in KINDS if role == "cloud" or kind != "function"]  # code needs no knowledge
    chosen: dict[str, Problem] = {}
    while len(chosen) < count:
        problem = held_out_question(library, kinds[len(chosen) % len(kinds)], rng, role)
        chosen.setdefault(problem.prompt, problem)
    return list(chosen.values())
