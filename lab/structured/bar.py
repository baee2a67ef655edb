"""python -m lab.structured.bar: are answers with a grammar valid, and what do they cost.

A model writes answers to random JSON Schemas, with random anchors that nobody chose with the schema in mind.
Each answer is parsed and checked by `jsonschema`, which shares no code with the engine of grammars, and set
against the same model's free answer of as many tokens: passes and seconds of the processor, a token.

Responsible for the measurement. Not responsible for schemas (see `schemas`) or decoding.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from common.cli import CommandParser, option, run_command
from common.files import write_whole
from common.progress import Bars
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.engine.base import Engine
from edge_runtime.grammar.errors import GrammarRoomError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from edge_runtime.runtime import EdgeRuntime
from lab.structured.schemas import random_schema
from payload import AnchorSet, Contract

CANVAS = 192
MOST_ANCHORS = 77
"""Two fifths of the canvas."""


@dataclass(frozen=True, kw_only=True)
class BarOptions:
    edge: Path = option(SHIPPED, "the bundle (default: the shipped one)", Path, metavar="BUNDLE")
    schemas: int = option(1000, "random schemas (default 1000)", metavar="N")
    seed: int = option(0, "of schemas and anchors (default 0)", metavar="N")
    output: Path | None = option(
        None, "also write the result here, as JSON", Path, metavar="FILE", flags=("-o", "--output")
    )


def hostile_anchors(random: Random, contract: Contract, canvas: int = CANVAS) -> AnchorSet:
    """Anchors of any ordinary ids at any positions, up to two fifths of the canvas; perhaps a length."""
    length = random.choice((None, random.randint(1, canvas)))
    places = random.sample(range(length or canvas), random.randint(0, min(MOST_ANCHORS, length or canvas)))
    ordinary = [random.randrange(contract.vocab_size) for _ in places]
    tokens = {p: id_ for p, id_ in zip(places, ordinary, strict=True) if contract.is_ordinary(id_)}
    return AnchorSet.of(tokens, canvas, contract, length)


@dataclass(frozen=True)
class Cost:
    """Of one answer: tokens, passes, and seconds of the processor."""

    tokens: int
    passes: int
    seconds: float


def cost(
    engine: Engine, prompt: list[int], anchors: AnchorSet, options: FillOptions
) -> tuple[Cost, list[int]]:
    """The answer and its cost; the prompt is in the cache already."""
    engine.rewind(0)
    engine.append(prompt)
    stats = FillStats()
    began = time.process_time()
    ids = [token.id for token in fill(engine, prompt, anchors, options, stats)]
    return Cost(len(ids), stats.passes, time.process_time() - began), ids


def measured(
    random: Random, engine: Engine, prompt: list[int], vocabulary: GrammarVocabulary, contract: Contract
) -> dict[str, Any]:
    """One schema: whether the answer is valid, and what it cost beside the free one."""
    import jsonschema

    schema = random_schema(random)
    anchors = hostile_anchors(random, contract)
    grammar = CompiledGrammar(Grammar.json_schema(schema), vocabulary, trusted=True)
    held, ids = cost(engine, prompt, anchors, FillOptions(grammar=grammar, score_anchors=False))
    free, _ = cost(engine, prompt, AnchorSet.empty(max(held.tokens, 1), contract, held.tokens), FillOptions())
    text = b"".join(map(vocabulary.tokens.token_bytes, ids))
    try:
        jsonschema.validate(json.loads(text), schema)
        wrong = None
    except (ValueError, jsonschema.ValidationError) as error:
        wrong = f"{schema}: {text!r}: {error}"[:2000]
    return {
        "wrong": wrong,
        "tokens": held.tokens,
        "anchors": len(anchors),
        "passes": held.passes / max(free.passes, 1),
        "seconds": (held.seconds / free.seconds) if free.seconds else 1.0,
        "extra": 1e3 * (held.seconds - free.seconds) / max(held.tokens, 1),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of all answers."""
    ratios = {name: np.asarray([row[name] for row in rows]) for name in ("passes", "seconds")}
    extra = np.asarray([row["extra"] for row in rows])
    return {
        "answers": len(rows),
        "valid": sum(row["wrong"] is None for row in rows),
        "tokens": int(sum(row["tokens"] for row in rows)),
        "anchors": int(sum(row["anchors"] for row in rows)),
        **{
            f"{name}_of_free": {
                "mean": float(values.mean()),
                "median": float(np.median(values)),
                "p99": float(np.quantile(values, 0.99)),
                "most": float(values.max()),
                "over_2": int((values > 2).sum()),
            }
            for name, values in ratios.items()
        },
        # What a larger model's passes are to be compared with.
        "extra_ms_a_token": {
            "mean": float(extra.mean()),
            "p99": float(np.quantile(extra, 0.99)),
            "most": float(extra.max()),
        },
        "wrong": [row["wrong"] for row in rows if row["wrong"]][:5],
    }


def _run(options: BarOptions) -> int:
    edge = EdgeRuntime.open(options.edge, threads=1)
    prompt = edge.prompt_ids("Describe it as an object.")
    vocabulary, contract = edge.grammar_vocabulary, edge.bundle.contract
    rows, unfit = [], 0
    with Bars("bar", passing=True).stage("schemas", options.schemas) as step:
        for index in range(options.schemas):
            try:
                random = Random(f"{options.seed}/{index}")
                rows.append(measured(random, edge.engine, prompt, vocabulary, contract))
            except GrammarRoomError:
                unfit += 1  # its shortest sentence is longer than the context
            step(1)
    report = {"bundle": edge.bundle.path.name, **summary(rows), "without_room": unfit}
    print(json.dumps(report, indent=1, ensure_ascii=False))
    if options.output:
        write_whole(options.output, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    return int(report["valid"] != options.schemas)


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.structured.bar",
        description=__doc__,
        epilog="example:\n  python -m lab.structured.bar -o results/bar.json   # about 3 minutes",
    )
    parser.declare(BarOptions)
    options = parser.parse(BarOptions, argv)
    return run_command("bar", lambda: _run(options))


if __name__ == "__main__":
    sys.exit(main())
