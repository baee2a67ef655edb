"""Models of the testbed, their training, and what they are trained on.

testbed-dream has Dream's architecture and knows; testbed-causal is the same model at the end of its causal
stage, a Qwen2 that knows; testbed-qwen has a tenth of their size and only writes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

from lab.pairs.shapes import special_ids
from lab.pairs.testbed.exercises import Exercises
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.questions import training_families
from lab.pairs.train import TrainingRecipe
from lab.pairs.training_data import Curriculum, Mix
from lab.pairs.vocabulary import train_on

TOKENS = 4092
"""Ordinary tokens; with the special ones 4,096."""

_END_OF_TEXT, _, _IM_END, _ = special_ids(TOKENS)

_COMMON: dict[str, Any] = {
    "vocab_size": TOKENS + 4,
    "max_position_embeddings": 320,
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "use_sliding_window": False,
    "bos_token_id": _END_OF_TEXT,
    "pad_token_id": _END_OF_TEXT,
}

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "testbed-dream": _COMMON
    | {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "eos_token_id": _END_OF_TEXT,
    },
    "testbed-qwen": _COMMON
    | {
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
        "eos_token_id": _IM_END,
    },
}

CAUSAL_NAME = "testbed-causal"

EARLY_STEPS = 200
"""First steps, of exercises alone: copying is learned in these, or not for thousands."""

TESTBED_RECIPES = {
    "testbed-dream": TrainingRecipe(
        "testbed-dream",
        steps=7_600,
        causal_steps=3_200,
        knows=True,
        causal_tokens=4096,
        masked_tokens=8192,
        diffusion=True,
        causal_name=CAUSAL_NAME,
        early_steps=EARLY_STEPS,
    ),
    "testbed-qwen": TrainingRecipe(
        "testbed-qwen", steps=2_200, causal_steps=2_200, knows=False, early_steps=EARLY_STEPS
    ),
}

_SHARES = {
    "fact": 0.12,
    "comparison": 0.2,
    "definition": 0.12,
    "profile": 0.26,
    "sum": 0.15,
    "choice": 0.12,
    "function": 0.03,
}
"""Most of what has many facts in an answer, and of comparisons and sums, which are learned last."""


def curriculum(library: Library) -> Curriculum:
    """Mixes of the kinds; the long rows are for profiles, the masked ones have room for a canvas of 192."""
    return Curriculum(
        training_families(library),
        causal=Mix(
            {64: 0.35, 96: 0.25, 128: 0.2, 256: 0.2},
            _SHARES,
            drills=0.3,
            drill=Exercises(library, copies=0.4).draw,
            dense=0.9,  # no tail is needed behind an answer
        ),
        masked=Mix(
            {64: 0.3, 96: 0.25, 128: 0.2, 192: 0.1, 256: 0.15},
            _SHARES,
            drills=0.15,
            drill=Exercises(library, copies=0.3).draw,
            dense=0.6,
        ),
        early=Mix({64: 1.0}, _SHARES, drills=1.0, drill=Exercises(library, copies=0.9).draw, dense=0.9),
    )


def texts(library: Library, samples: int, seed: int = 0) -> Iterator[str]:
    """Prompts and answers of all kinds, half of them of what the cloud knows."""
    rng = random.Random(seed)
    families = training_families(library)
    for index in range(samples):
        for draw in families.values():
            problem = draw(rng, index % 2 == 0)
            yield problem.prompt
            yield problem.answer


def tokenizer(library: Library, samples: int = 10_000) -> Tokenizer:
    """A BPE of `TOKENS` tokens in Qwen2's form; the same on every run."""
    return train_on(texts(library, samples), TOKENS)
