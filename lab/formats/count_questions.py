"""Initial counts of a question's text in codec predictive: `python -m lab.formats.count_questions`.

Responsible for counting, over the questions of benchmarks as a bundle's model predicts them, the codes that
frames would use, and for writing `payload/codecs/question_counts.py`. Not responsible for counting (see
`lab.formats.count_adaptive`), nor for bytes (see `question_bytes`).

The counts are part of the wire format: counted before a release, never after.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from common.files import write_whole
from edge_runtime.runtime import EdgeRuntime
from lab.formats.count_adaptive import literal, settle
from lab.options import add_pair, add_questions, questions
from lab.questions.items import Item
from links.frames.question_text import MAX_QUESTION_BYTES, PREDICTIVE_CANVASES, as_anchors, token_ids
from payload.codecs import question_counts
from payload.codecs.adaptive_model import InitialCounts
from payload.codecs.predictive import TOLERANCE, PlannedToken, plan

OUTPUT = Path(question_counts.__file__)


def observed_questions(edge: EdgeRuntime, items: Sequence[Item]) -> Iterator[list[PlannedToken]]:
    """The tokens to code of every question that a predictive frame can carry."""
    context = edge.question_context()
    assert context.tokens is not None
    assert context.predictor is not None
    for item in items:
        ids = token_ids(item.prompt, context.tokens, context.contract)
        if ids and len(item.prompt.encode("utf-8")) <= MAX_QUESTION_BYTES:
            anchors = as_anchors(ids, context.contract, PREDICTIVE_CANVASES)
            yield plan(anchors, context.predictor, None, TOLERANCE, ids)


def module_text(counts: InitialCounts, made_of: str) -> str:
    """The text of the module `question_counts`."""
    tables = {
        "QUESTION_STABLE": counts.stable,
        "QUESTION_MODES": counts.modes,
        "QUESTION_RANKS": counts.ranks,
    }
    lines = [
        '"""Initial counts of a question\'s text in codec predictive; a part of the wire format.',
        "",
        "Made by `python -m lab.formats.count_questions` from",
        f"{made_of}.",
        "See `adaptive_model.InitialCounts`; what is not here is that of `initial_counts`.",
        '"""',
        "",
        f'MADE_OF = "{made_of}"',
        "",
        "# fmt: off",
        *(f"{name} = {literal(table)}" for name, table in tables.items()),
        "# fmt: on",
        "",
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.formats.count_questions",
        description="Count the initial counts of predictive questions anew. Changes the wire format.",
        epilog="example: python -m lab.formats.count_questions --edge BUNDLE --data gsm8k=gsm8k.jsonl "
        "mmlu=mmlu.jsonl humaneval=humaneval.jsonl --write",
    )
    add_pair(parser)
    add_questions(parser, 90)
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT.name}; else it is printed")
    args = parser.parse_args(argv)
    return run_command("count_questions", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    items = questions(args)
    edge = EdgeRuntime.open(bundle_of(args.model, args.edge))
    work = observed_questions(edge, items)
    texts = list(track(work, "questions", len(items), console=Console(stderr=True)))
    counts = settle(texts, edge.bundle.contract.vocab_size + 1)
    kinds = ", ".join(sorted({item.benchmark for item in items}))
    made_of = f"{len(texts)} questions of {kinds}, as {edge.bundle.manifest.model.id} predicts them"
    text = module_text(counts, made_of)
    if args.write:
        write_whole(OUTPUT, text.encode())
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
