"""python -m lab.structured.bar: are answers with a grammar valid, and what do they cost.

A model writes answers to random JSON Schemas, with random anchors that nobody chose with the schema in mind.
Each answer is parsed and checked by `jsonschema`, which shares no code with the engine of grammars, and set
against the same model's free answer of as many tokens: passes and seconds of the processor, a token. What a
grammar costs once, before the first of its answers, is told apart.

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
from common.progress import Bars
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.engine.base import Engine
from edge_runtime.grammar.errors import GrammarRoomError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from edge_runtime.runtime import EdgeRuntime
from lab.machine import machine
from lab.report import write_tables
from lab.store import Store
from lab.structured.schemas import random_schema
from lab.tables import Row, Table
from payload import AnchorSet, Contract

TITLE = "What a grammar costs: answers to random schemas with random anchors"
RUNS = 3
"""Of one answer: a short one takes a millisecond, which other work on the machine can double."""
CANVAS = 192
MOST_ANCHORS = 77
"""Two fifths of the canvas."""


@dataclass(frozen=True, kw_only=True)
class BarOptions:
    edge: Path = option(SHIPPED, "the bundle (default: the shipped one)", Path, metavar="BUNDLE")
    schemas: int = option(1000, "random schemas (default 1000)", metavar="N")
    seed: int = option(0, "of schemas and anchors (default 0)", metavar="N")
    variant: str | None = option(None, "its variant (default: the bundle's)", metavar="NAME")
    output: Path | None = option(
        None, "also write tables.json here, for publish", Path, metavar="FOLDER", flags=("-o", "--output")
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
    """The answer and its cost, the least of `RUNS`; the prompt is in the cache already."""
    seconds = []
    for _ in range(RUNS):
        engine.rewind(0)
        engine.append(prompt)
        stats = FillStats()
        began = time.process_time()
        ids = [token.id for token in fill(engine, prompt, anchors, options, stats)]
        seconds.append(time.process_time() - began)
    return Cost(len(ids), stats.passes, min(seconds)), ids


def measured(
    random: Random, engine: Engine, prompt: list[int], vocabulary: GrammarVocabulary, contract: Contract
) -> dict[str, Any]:
    """One schema: whether the answer is valid, and what it cost beside the free one."""
    import jsonschema

    schema = random_schema(random)
    anchors = hostile_anchors(random, contract)
    began = time.process_time()
    grammar = CompiledGrammar(Grammar.json_schema(schema), vocabulary, trusted=True)
    once = time.process_time() - began
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
        "free": 1e3 * free.seconds / max(held.tokens, 1),
        "once": 1e3 * once,
    }


FIGURES = {
    "passes, of the free answer's": "passes",
    "seconds, of the free answer's": "seconds",
    "ms a token more than the free answer": "extra",
    "ms a token of the free answer": "free",
    "ms before the first answer": "once",
}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts of all answers."""
    counts = {name: sum(row[name] for row in rows) for name in ("tokens", "anchors")}
    wrong = [row["wrong"] for row in rows if row["wrong"]]
    slow = {name: sum(row[name] > 2 for row in rows) for name in ("passes", "seconds")}
    return {
        "answers": len(rows),
        "valid": len(rows) - len(wrong),
        **counts,
        "over twice": slow,
        "wrong": wrong[:5],
    }


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Each of `FIGURES` over all answers."""
    lines: list[Row] = []
    for figure, name in FIGURES.items():
        values = np.asarray([row[name] for row in rows])
        lines.append(
            {
                "figure": figure,
                "mean": float(values.mean()),
                "median": float(np.median(values)),
                "99th percentile": float(np.quantile(values, 0.99)),
                "most": float(values.max()),
                "answers over 2": int((values > 2).sum()) if name in ("passes", "seconds") else None,
            }
        )
    return Table.of("bar", TITLE, lines)


def _run(options: BarOptions) -> int:
    edge = EdgeRuntime.open(options.edge, options.variant, threads=1)
    model = f"{edge.bundle.manifest.model.id}, {edge.bundle.variant_name}"
    settings = {"edge": model, "schemas": options.schemas, "seed": options.seed}
    store = Store(options.output, settings) if options.output else None
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
    found = summary(rows)
    print(json.dumps({**found, "without room": unfit}, indent=1, ensure_ascii=False))
    said = (
        f"{found['valid']} of {options.schemas} answers are valid; {found['tokens']} tokens, "
        f"{found['anchors']} anchors sent. Edge model: {model}, one thread. Seconds are of the "
        f"processor, the least of {RUNS} runs. Machine: {machine()}."
    )
    if slow := sorted(row["tokens"] for row in rows if row["seconds"] > 2):
        said += f" More than twice the seconds took answers of {', '.join(map(str, slow))} tokens."
    if store is not None and rows:
        write_tables(store, TITLE, [said], [table(rows)])
    return int(found["valid"] != options.schemas)


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.structured.bar",
        description=__doc__,
        epilog="example:\n  python -m lab.structured.bar -o results/bar   # about 3 minutes",
    )
    parser.declare(BarOptions)
    options = parser.parse(BarOptions, argv)
    return run_command("bar", lambda: _run(options))


if __name__ == "__main__":
    sys.exit(main())
