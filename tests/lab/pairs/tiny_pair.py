"""The tiny pair as one that can be trained and taught: its weights ship, its questions need no sources."""

from __future__ import annotations

import random
from functools import partial

from lab.pairs.batches import Curriculum, Mix
from lab.pairs.pair import Pair, TrainingRecipe
from lab.pairs.problem import DRILL, Problem
from lab.pairs.shapes import shape
from lab.pairs.tiny.check import is_right
from lab.pairs.tiny.tasks import FAMILIES, held_out_problems
from lab.pairs.tiny.world import TOWNS

TOKENS = 1730
SHAPES = {
    "tiny-dream": shape(
        TOKENS, positions=192, hidden=192, mlp=512, layers=6, heads=3, diffusion=True, rows=1792
    ),
    "tiny-qwen": shape(
        TOKENS, positions=256, hidden=64, mlp=192, layers=4, heads=2, diffusion=False, rows=1792
    ),
}
RECIPES = {
    "tiny-dream": TrainingRecipe("tiny-dream", steps=400, causal_steps=100, knows=True, diffusion=True),
    "tiny-qwen": TrainingRecipe("tiny-qwen", steps=100, causal_steps=100, knows=False),
}


def drill(rng: random.Random, knows: bool) -> Problem:
    if knows and rng.random() < 0.5:
        prompt, answer = "Reckon.", " ".join(f"{n} + 3 = {n + 3}." for n in rng.sample(range(1, 30), 8))
    else:
        said = " ".join(rng.choices(TOWNS, k=8))
        prompt, answer = f"Repeat: {said}.", f"Here it is: {said}."
    return Problem(DRILL, "easy", prompt, answer, (), prompt, split=False)


MIX = Mix({64: 0.3, 96: 0.3, 128: 0.3, 192: 0.1}, dict.fromkeys(FAMILIES, 0.25), drills=0.35, drill=drill)
DRAWS = {name: partial(lambda draw, rng, knows: draw(rng), draw) for name, draw in FAMILIES.items()}
CURRICULUM = Curriculum(DRAWS, causal=MIX, masked=MIX)
PAIR = Pair(
    "tiny",
    RECIPES,
    SHAPES,
    CURRICULUM,
    tokenizer=NotImplemented,
    long="description",
    held_out=held_out_problems,
    is_right=is_right,
    checkpoints=tuple(SHAPES),
    edge="tiny-qwen",
    verified=12,
    about="",
    sources=list,
)
