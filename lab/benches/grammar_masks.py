"""python -m lab.benches.grammar_masks: what a grammar costs a token, at a real vocabulary.

Along a given answer, at every token: the mask of the tokens that the grammar allows, the same applied to
logits, the tokens that it forces, and an ending behind the token. Prints microseconds of the processor as
JSON: mean, the 99th percentile, and the most. The tables of a vocabulary are made once for a bundle; their
time and memory, too.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.cli import CommandParser, option, run_command
from edge_runtime.errors import UsageError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from edge_runtime.text.tokenizer import Tokenizer
from lab.structured.answers import SCHEMA
from payload import Contract

ANSWER = {
    "name": "Ada Lovelace, countess",
    "attributes": [
        {"name": "born", "value": "10 December 1815, in London"},
        {"name": "known for", "value": "the first program, notes on the Analytical Engine"},
        {"name": "father", "value": "Lord Byron"},
    ],
}
ROWS = 151_936
"""Logits of Qwen2.5; its tokenizer has 151,665 tokens."""


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    tokenizer: Path = option(
        None, "a tokenizer.json; that of Qwen2.5 for published figures", Path, metavar="FILE", required=True
    )
    repeat: int = option(5, "passes over the answer (default 5)", metavar="N")


def contract_of(tokenizer: Tokenizer) -> Contract:
    """A contract of the vocabulary's size, enough for masks."""
    special = sorted(tokenizer.special_ids)
    if not special:
        raise UsageError("tokenizer: expected one with special tokens, found none")
    names = {f"<{id_}>": id_ for id_ in special}
    return Contract(min(special), "0" * 64, names, "1" * 64, ends=(next(iter(names)),))


def figures(seconds: Sequence[float]) -> dict[str, float]:
    micros = np.asarray(seconds) * 1e6
    return {
        "mean": float(micros.mean()),
        "p99": float(np.quantile(micros, 0.99)),
        "most": float(micros.max()),
    }


def _run(options: MaskOptions) -> None:
    tokenizer = Tokenizer.from_file(options.tokenizer)
    before, began = _memory(), time.perf_counter()
    vocabulary = GrammarVocabulary(tokenizer, contract_of(tokenizer))
    grammar = CompiledGrammar(Grammar.json_schema(SCHEMA), vocabulary, trusted=True)
    made, grown = time.perf_counter() - began, _memory() - before
    ids = tokenizer.encode(json.dumps(ANSWER))
    logits = np.random.default_rng(0).standard_normal(ROWS).astype(np.float32)
    spent: dict[str, list[float]] = {"mask": [], "mask_applied": [], "forced": [], "ending": []}

    def timed(name: str, work: Callable[..., Any], *given: Any) -> None:
        at = time.thread_time()
        work(*given)
        spent[name].append(time.thread_time() - at)

    for _ in range(options.repeat):
        matcher, ending = grammar.matcher(), grammar.ending(2000, 200)
        for id_ in ids:
            timed("mask", getattr, matcher, "mask")
            timed("mask_applied", matcher.masked, logits)
            timed("forced", matcher.forced)
            timed("ending", ending.take, tokenizer.token_bytes(id_))
            assert matcher.take(id_), tokenizer.token_bytes(id_)
        assert matcher.accepts
    report = {
        "tokens": len(ids),
        "vocabulary": vocabulary.size,
        "rows": ROWS,
        "microseconds": {name: figures(each) for name, each in spent.items()},
        "tables_seconds": made,
        "tables_bytes": grown,
    }
    print(json.dumps(report, indent=1))


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.grammar_masks",
        description=__doc__,
        epilog="example:\n  python -m lab.benches.grammar_masks --tokenizer tokenizer.json   # seconds",
    )
    parser.declare(MaskOptions)
    options = parser.parse(MaskOptions, argv)
    return run_command("grammar_masks", lambda: _run(options))


if __name__ == "__main__":
    sys.exit(main())
