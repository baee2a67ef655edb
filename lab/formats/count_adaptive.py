"""Initial counts of codec predictive: `python -m lab.formats.count_adaptive`.

Responsible for counting, over right answers to training prompts, the codes that payloads would use for
tokens, their ranks and the positions of anchors, and for writing `payload/codecs/initial_counts.py`. Not
responsible for coding (see `payload.codecs.adaptive_model`).

The counts are part of the wire format: a payload written with other counts cannot be decoded, so they are
counted before a release, never after. The choice of a code depends on the counts and they on the codes, so
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

from common.cli import run_command
from common.files import write_whole
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.runtime import EdgeRuntime
from lab.pairs.problem import Problem
from lab.pairs.tiny.tasks import FAMILIES, problems
from payload import AnchorSet
from payload.codecs import initial_counts
from payload.codecs.adaptive_model import FORMAT_COUNTS, AdaptiveModel, InitialCounts, Sizes
from payload.codecs.predictive import TOLERANCE, PlannedToken, plan
from payload.codecs.range_coder import Coder
from payload.codecs.rank_codes import BUCKETS, ESCAPE, MODES, RANK, TOP

OUTPUT = Path(initial_counts.__file__)
GROUPS, RANKED_MODES, CLASSES = 3, 4, 8
"""Pairs of buckets, for ranks; modes that code a rank; rank classes with a count of their own."""

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


def observed(edge: EdgeRuntime, prompts: int, seed: int) -> Iterator[list[PlannedToken]]:
    """The tokens to code of right answers, the families in turn."""
    streams = [problems(family, seed, held_out=False) for family in FAMILIES]
    for index in range(prompts):
        problem = next(streams[index % len(streams)])
        predictor = edge.predictive_model.predictor(edge.prompt_ids(problem.prompt))
        draft = edge.bundle.tokenizer.encode(problem.answer)
        yield plan(anchors_of(edge, problem), predictor, None, TOLERANCE, draft)


def settle(texts: Sequence[Sequence[PlannedToken]], tokens: int) -> InitialCounts:
    """The counts over `texts` after `ROUNDS` rounds, from the format's own on; tokens: see `count`."""
    counts = FORMAT_COUNTS
    for _ in range(ROUNDS):
        counts = count(texts, tokens, counts)
    return counts


def count(
    texts: Sequence[Sequence[PlannedToken]], tokens: int, counts: InitialCounts = FORMAT_COUNTS
) -> InitialCounts:
    """The counts over `texts` with the codes that a model beginning with `counts` chooses.

    tokens: size of the vocabulary, END included.
    """
    modes = {(bucket, after_miss): Counter[int]() for bucket in range(BUCKETS) for after_miss in (0, 1)}
    ranks = {(mode, group): Counter[int]() for mode in range(RANKED_MODES) for group in range(GROUPS)}
    flags = {bucket: Counter[int]() for bucket in range(BUCKETS)}
    stable = Counter[int]()
    for planned in texts:
        model, after_miss = AdaptiveModel(Coder(None), uncertain=True, counts=counts), 0
        for each in planned:
            stable[int(not each.stable)] += 1
            code = model.rank_code(each.codes, each.bucket, tokens)
            modes[each.bucket, after_miss][code.mode] += 1
            after_miss = int(code.mode != TOP)
            if code.mode not in (TOP, ESCAPE):
                ranks[code.mode - 1, each.bucket // 2][code.rank.bit_length()] += 1
            if each.token == tokens - 1:
                continue
            if code.mode == TOP or (code.mode == RANK and code.rank == 1 and each.end_leads):
                flags[each.bucket][int(each.anchor)] += 1
    both = [modes[bucket, 0] + modes[bucket, 1] for bucket in range(BUCKETS)]
    every = [
        sum((ranks[mode, group] for group in range(GROUPS)), Counter[int]()) for mode in range(RANKED_MODES)
    ]
    even = Counter(dict.fromkeys(range(CLASSES), 1))
    return replace(
        counts,
        stable=_sizes(stable, 2),
        modes=tuple(
            (
                _sizes(modes[bucket, 0], MODES, both[bucket]),
                _sizes(modes[bucket, 1], MODES, both[bucket]),
            )
            for bucket in range(BUCKETS)
        ),
        ranks=tuple(
            tuple(_sizes(ranks[mode, group], CLASSES, every[mode] + even) for group in range(GROUPS))
            for mode in range(RANKED_MODES)
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
    total = initial_counts.STEP * (SURE if evidence > MUCH else weight)
    return tuple(max(1, round(total * share / max(evidence, 1))) for share in shares)


def source(counts: InitialCounts, prompts: int) -> str:
    """The text of the module `initial_counts`."""
    tables = {
        "INITIAL_STABLE": counts.stable,
        "INITIAL_MODES": counts.modes,
        "INITIAL_RANKS": counts.ranks,
        "INITIAL_FLAGS": counts.flags,
        "INITIAL_UNRANKED": counts.unranked,
        "INITIAL_MORE": counts.more,
    }
    lines = [
        '"""Initial counts of codec predictive, in sixteenths of an occurrence; a part of the wire format.',
        "",
        f"Made by `python -m lab.formats.count_adaptive` from right answers to {prompts} training",
        "prompts of the tiny pair; INITIAL_FLAGS[0], INITIAL_UNRANKED and INITIAL_MORE are estimates. See",
        "`adaptive_model.InitialCounts`.",
        '"""',
        "",
        f"STEP = {initial_counts.STEP}",
        '"""Added to the count of a value that is coded."""',
        "",
        "# fmt: off",
        *(f"{name} = {literal(table)}" for name, table in tables.items()),
    ]
    return "\n".join([*lines, "# fmt: on", ""])


def literal(table: object, indent: str = "    ") -> str:
    """A table of counts in Python, nested over lines where it is long."""
    text = repr(table)
    if len(text) + len(indent) <= 88 or not isinstance(table, tuple):
        return text
    inner = "".join(f"{indent}{literal(each, indent + '    ')},\n" for each in table)
    return f"(\n{inner}{indent[4:]})"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.formats.count_adaptive",
        description="Count the initial counts of codec predictive anew. Changes the wire format.",
        epilog="example: python -m lab.formats.count_adaptive --prompts 400 --write",
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
    counts = settle(texts, edge.bundle.contract.vocab_size + 1)
    text = source(counts, args.prompts)
    if args.write:
        write_whole(OUTPUT, text.encode())
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
