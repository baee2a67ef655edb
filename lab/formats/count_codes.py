"""Initial counts of codec predictive, of answers and of questions: `python -m lab.formats.count_codes`.

Responsible for counting the codes that payloads and frames would use for tokens, their ranks and the
positions of anchors, and for writing `payload/codecs/initial_counts.py` (over right answers to training
prompts of the tiny pair) and `question_counts.py` (over questions of benchmarks, as a bundle's model predicts
them). Not responsible for coding (see `payload.codecs.adaptive_model`).

The counts are part of the wire format: a payload written with other counts cannot be decoded, so they are
counted before a release, never after. The choice of a code depends on the counts and they on the codes, so
the counting is repeated a few times.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from common.cli import option, run_options
from common.files import write_whole
from common.progress import Bars
from edge_runtime.bundle.bundle import BUNDLES
from edge_runtime.runtime import EdgeRuntime
from lab.pairs.problem import Problem
from lab.pairs.tiny.tasks import FAMILIES, problems
from lab.questions.items import Item, load_items
from links.frames.question_text import MAX_QUESTION_BYTES, PREDICTIVE_CANVASES, as_anchors, token_ids
from payload import AnchorSet
from payload.codecs import initial_counts, question_counts
from payload.codecs.adaptive_model import FORMAT_COUNTS, AdaptiveModel, InitialCounts, Sizes
from payload.codecs.predictive import TOLERANCE, PlannedToken, plan
from payload.codecs.range_coder import Coder
from payload.codecs.rank_codes import BUCKETS, ESCAPE, MODES, RANK, TOP

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
    rows = edge.predictor(edge.prompt_ids(problem.prompt)).read(text, 0)
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
        predictor = edge.predictor(edge.prompt_ids(problem.prompt))
        draft = edge.bundle.tokenizer.encode(problem.answer)
        yield plan(anchors_of(edge, problem), predictor, None, TOLERANCE, draft)


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
            (_sizes(modes[bucket, 0], MODES, both[bucket]), _sizes(modes[bucket, 1], MODES, both[bucket]))
            for bucket in range(BUCKETS)
        ),
        ranks=tuple(
            tuple(_sizes(ranks[mode, group], CLASSES, every[mode] + even) for group in range(GROUPS))
            for mode in range(RANKED_MODES)
        ),
        flags=(counts.flags[0], tuple(_sizes(flags[bucket], 2, weight=RULE) for bucket in range(BUCKETS))),
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


def answer_module(counts: InitialCounts, prompts: int) -> str:
    """The text of the module `initial_counts`."""
    title = "Initial counts of codec predictive, in sixteenths of an occurrence; a part of the wire format."
    about = f"""\"\"\"{title}

Made by `python -m lab.formats.count_codes` from right answers to {prompts} training
prompts of the tiny pair; INITIAL_FLAGS[0], INITIAL_UNRANKED and INITIAL_MORE are estimates. See
`adaptive_model.InitialCounts`.
\"\"\"

STEP = {initial_counts.STEP}
\"\"\"Added to the count of a value that is coded.\"\"\"
"""
    return _module(about, "INITIAL", counts, ("stable", "modes", "ranks", "flags", "unranked", "more"))


def question_module(counts: InitialCounts, made_of: str) -> str:
    """The text of the module `question_counts`."""
    about = f"""\"\"\"Initial counts of a question's text in codec predictive; a part of the wire format.

Made by `python -m lab.formats.count_codes --data` from
{made_of}.
See `adaptive_model.InitialCounts`; what is not here is that of `initial_counts`.
\"\"\"

MADE_OF = "{made_of}"
"""
    return _module(about, "QUESTION", counts, ("stable", "modes", "ranks"))


def _module(about: str, prefix: str, counts: InitialCounts, names: Sequence[str]) -> str:
    tables = [f"{prefix}_{name.upper()} = {literal(getattr(counts, name))}" for name in names]
    return "\n".join([about, "# fmt: off", *tables, "# fmt: on", ""])


def literal(table: object, indent: str = "    ") -> str:
    """A table of counts in Python, nested over lines where it is long."""
    text = repr(table)
    if len(text) + len(indent) <= 88 or not isinstance(table, tuple):
        return text
    inner = "".join(f"{indent}{literal(each, indent + '    ')},\n" for each in table)
    return f"(\n{inner}{indent[4:]})"


@dataclass(frozen=True)
class CountOptions:
    """Count the initial counts of codec predictive anew. Changes the wire format."""

    prompts: int = option(400, "training prompts, or questions")
    seed: int = option(5, "which of them")
    edge: Path = option(BUNDLES / "tiny-qwen", "edge bundle (default: tiny-qwen)")
    data: tuple[str, ...] = option((), "count questions of these sources instead", metavar="SOURCE")
    write: bool = option(False, "write the module; else it is printed")


EPILOG = """examples:
  python -m lab.formats.count_codes --write
  python -m lab.formats.count_codes --edge BUNDLE --prompts 90 --seed 0 --write \\
      --data gsm8k=gsm8k.jsonl mmlu=mmlu.jsonl humaneval=humaneval.jsonl"""


def run(options: CountOptions) -> None:
    edge, sources = EdgeRuntime.open(options.edge, threads=1), list(options.data)
    items = load_items(sources, options.prompts, options.seed) if sources else []
    work = observed_questions(edge, items) if items else observed(edge, options.prompts, options.seed)
    texts = []
    with Bars().stage("texts", options.prompts) as step:
        for planned in work:
            texts.append(planned)
            step(1)
    counts = settle(texts, edge.bundle.contract.vocab_size + 1)
    place, text = initial_counts.__file__, answer_module(counts, options.prompts)
    if items:
        kinds = ", ".join(sorted({item.benchmark for item in items}))
        made_of = f"{len(texts)} questions of {kinds}, as {edge.bundle.manifest.model.id} predicts them"
        place, text = question_counts.__file__, question_module(counts, made_of)
    if options.write:
        write_whole(Path(place), text.encode())
    else:
        print(text, end="")


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("lab.formats.count_codes", run, CountOptions, argv, EPILOG)


if __name__ == "__main__":
    sys.exit(main())
