"""Initial counts of codec predictive: `python -m cloud_anchor.tiny.count_adaptive`.

Responsible for counting, over right answers to training prompts, how payloads would name tokens, their ranks
and the places of anchors, and for writing `payload/codecs/adaptive_counts.py`. Not responsible for coding
(see `payload.codecs.adaptive_model`).

The counts are part of the wire format: a payload written with other counts cannot be decoded, so they are
counted before a release, never after. The choice of a name depends on the counts and they on the names, so
the counting is repeated a few times.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from cloud_anchor.tiny.problem import Problem
from cloud_anchor.tiny.tasks import FAMILIES, problems
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet
from payload.cli import run_command
from payload.codecs import adaptive_counts
from payload.codecs.adaptive_model import FORMAT_COUNTS, AdaptiveModel, InitialCounts, Sizes
from payload.codecs.naming import BUCKETS, BY_RANK, NUMBER, TOP, WAYS
from payload.codecs.predictive import TOLERANCE, Place, observe
from payload.codecs.range_coder import Coder
from payload.files import write_whole

OUTPUT = Path(adaptive_counts.__file__)
GROUPS, NAMED, CLASSES = 3, 4, 8
"""Pairs of buckets, for ranks; ways that name by rank; rank classes with a count of their own."""

MARGIN = 2.0
"""Margin of logits under which an anchor is sent although it is the edge model's own token."""

WEIGHT, SURE, RULE = 32, 128, 8
"""Occurrences that the counts of a distribution stand for: SURE where there is much evidence, RULE where the
distribution follows the writer's choice of anchors, which other writers may make differently.
"""

MUCH = 400
ROUNDS = 5


def anchors_of(edge: EdgeRuntime, problem: Problem) -> AnchorSet:
    """Tokens of a right answer that the edge model would not decode, or only by less than `MARGIN`."""
    contract = edge.bundle.contract
    text = edge.bundle.tokenizer.encode(problem.answer)
    rows = edge.predictive_model.predictor(edge.prompt_ids(problem.prompt)).read(text, 0)
    sent = []
    for position, row in enumerate(islice(rows, len(text))):
        ordinary = row[: contract.vocab_size]
        second, first = np.partition(ordinary, -2)[-2:]
        if first - second < MARGIN or ordinary.argmax() != text[position]:
            sent.append(position)
    return AnchorSet.of({position: text[position] for position in sent}, len(text) + 1, contract, len(text))


def observed(edge: EdgeRuntime, prompts: int, seed: int) -> Iterator[list[Place]]:
    """The coded places of right answers, the families in turn."""
    streams = [problems(family, seed, held_out=False) for family in FAMILIES]
    for index in range(prompts):
        problem = next(streams[index % len(streams)])
        predictor = edge.predictive_model.predictor(edge.prompt_ids(problem.prompt))
        draft = edge.bundle.tokenizer.encode(problem.answer)
        yield observe(anchors_of(edge, problem), predictor, None, TOLERANCE, draft)


def count(
    texts: Sequence[Sequence[Place]], tokens: int, counts: InitialCounts = FORMAT_COUNTS
) -> InitialCounts:
    """The counts over `texts` with the names that a model beginning with `counts` chooses.

    tokens: size of the vocabulary, END included.
    """
    ways = {(bucket, lapsed): Counter[int]() for bucket in range(BUCKETS) for lapsed in (0, 1)}
    ranks = {(way, group): Counter[int]() for way in range(NAMED) for group in range(GROUPS)}
    flags = {bucket: Counter[int]() for bucket in range(BUCKETS)}
    clear = Counter[int]()
    for places in texts:
        model, lapsed = AdaptiveModel(Coder(None), doubtful=True, counts=counts), 0
        for place in places:
            clear[int(not place.clear)] += 1
            name = model.name(place.names, place.bucket, tokens)
            ways[place.bucket, lapsed][name.way] += 1
            lapsed = int(name.way != TOP)
            if name.way not in (TOP, NUMBER):
                ranks[name.way - 1, place.bucket // 2][name.rank.bit_length()] += 1
            if place.token == tokens - 1:
                continue
            if name.way == TOP or (name.way == BY_RANK and name.rank == 1 and place.end_leads):
                flags[place.bucket][int(place.anchor)] += 1
    both = [ways[bucket, 0] + ways[bucket, 1] for bucket in range(BUCKETS)]
    every = [sum((ranks[way, group] for group in range(GROUPS)), Counter[int]()) for way in range(NAMED)]
    even = Counter(dict.fromkeys(range(CLASSES), 1))
    return replace(
        counts,
        clear=_sizes(clear, 2),
        ways=tuple(
            (
                _sizes(ways[bucket, 0], WAYS, both[bucket]),
                _sizes(ways[bucket, 1], WAYS, both[bucket]),
            )
            for bucket in range(BUCKETS)
        ),
        ranks=tuple(
            tuple(_sizes(ranks[way, group], CLASSES, every[way] + even) for group in range(GROUPS))
            for way in range(NAMED)
        ),
        flags=(
            counts.flags[0],
            tuple(_sizes(flags[bucket], 2, weight=RULE) for bucket in range(BUCKETS)),
        ),
    )


def _sizes(
    found: Mapping[int, int], many: int, behind: Mapping[int, int] | None = None, weight: int = WEIGHT
) -> Sizes:
    """Counts by share, at least 1. behind: a coarser distribution, worth half a dozen occurrences."""
    shares = [float(found.get(index, 0)) for index in range(many)]
    if behind:
        every = sum(behind.values())
        shares = [share + 6 * behind.get(index, 0) / every for index, share in enumerate(shares)]
    evidence = sum(shares)
    total = adaptive_counts.STEP * (SURE if evidence > MUCH else weight)
    return tuple(max(1, round(total * share / max(evidence, 1))) for share in shares)


def source(counts: InitialCounts, prompts: int) -> str:
    """The text of the module `adaptive_counts`."""
    tables = {
        "CLEAR": counts.clear,
        "FIRST_WAYS": counts.ways,
        "FIRST_RANKS": counts.ranks,
        "FIRST_FLAGS": counts.flags,
        "FIRST_GUESSED": counts.guessed,
        "FIRST_MORE": counts.more,
    }
    lines = [
        '"""Initial counts of codec predictive, in sixteenths of an occurrence; a part of the wire format.',
        "",
        f"Made by `python -m cloud_anchor.tiny.count_adaptive` from right answers to {prompts} training",
        "prompts of the tiny pair; FIRST_FLAGS[0], FIRST_GUESSED and FIRST_MORE are guesses. See",
        "`adaptive_model.InitialCounts`.",
        '"""',
        "",
        f"STEP = {adaptive_counts.STEP}",
        '"""What one occurrence adds to its count."""',
        "",
        "# fmt: off",
        *(f"{name} = {_literal(table)}" for name, table in tables.items()),
    ]
    return "\n".join([*lines, "# fmt: on", ""])


def _literal(table: object, indent: str = "    ") -> str:
    text = repr(table)
    if len(text) + len(indent) <= 88 or not isinstance(table, tuple):
        return text
    inner = "".join(f"{indent}{_literal(each, indent + '    ')},\n" for each in table)
    return f"(\n{inner}{indent[4:]})"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.tiny.count_adaptive",
        description="Count the initial counts of codec predictive anew. Changes the wire format.",
        epilog="example: python -m cloud_anchor.tiny.count_adaptive --prompts 400 --write",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--prompts", type=int, default=400, help="training prompts (400)")
    parser.add_argument("--seed", type=int, default=5, help="which of them")
    parser.add_argument("--bundle", type=Path, default=SHIPPED, help="edge bundle (default: the shipped one)")
    parser.add_argument("--write", action="store_true", help=f"write {OUTPUT.name}; else it is printed")
    args = parser.parse_args(argv)
    return run_command("count_adaptive", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    edge = EdgeRuntime.open(args.bundle, threads=1)
    work = observed(edge, args.prompts, args.seed)
    texts = list(track(work, "answers", args.prompts, console=Console(stderr=True)))
    counts = FORMAT_COUNTS
    for _ in range(ROUNDS):
        counts = count(texts, edge.bundle.contract.vocab_size + 1, counts)
    text = source(counts, args.prompts)
    if args.write:
        write_whole(OUTPUT, text.encode())
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
