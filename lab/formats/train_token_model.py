"""Training of `model.bin`, and its cross-validation: `python -m lab.formats.train_token_model`.

Responsible for the texts, the folds and the features, which it records from the token model. Word statistics
are counts (`word_statistics`); the weights are fitted (`fit`) so that the tokens of the traces take the
fewest bits, always under statistics from which the trace at hand was left out. `--measure` codes every trace
with statistics and weights made without its fold, `--measure-questions` GSM8K's questions with statistics
made without their solutions. Not responsible for coding. Needs tokenizers.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.cli import run_command
from common.errors import InputError
from common.files import read_text, write_whole
from lab.formats.codec_bench import FULL, anchors_of, summary
from lab.formats.fit import Instance, fit
from lab.formats.word_statistics import Text, count_words, write_model
from lab.published.published_runs import (
    DEFAULT_TOKENIZER,
    Trace,
    TraceTokenizer,
    full_answer,
    read_traces,
)
from links.frames.question import QUESTION_HEADER_BYTES
from links.frames.question_text import CANVASES, as_anchors
from payload.codecs import compact
from payload.codecs.prior import END, MODEL_FILE, START, WEIGHT_SIZES, Prior, Weights, Words, prior_of
from payload.codecs.range_coder import Coder
from payload.codecs.token_model import TokenModel
from payload.header import HEADER_BYTES

EPILOG = """example:
  python -m lab.formats.train_token_model --traces ../shared/traces/dream7b_dev.jsonl \\
      --fills ../shared/traces/qwen05_fill_dev.jsonl --prompts ../shared/prompts
"""

TRACE_WEIGHT, FILL_WEIGHT, PROMPT_WEIGHT = 6.0, 3.0, 1.0
SEED = 1
MEASURED = ("0.1", "0.25", FULL)
ZERO = Weights(**{name: (0,) * size for name, size in WEIGHT_SIZES.items()})


class TextSource(NamedTuple):
    """A text and the name of its trace: both are left out together."""

    name: str | None
    text: Text


class Recorder(TokenModel):
    """A token model that records the features of every candidate of each token it codes."""

    def __init__(self, prior: Prior, vocab_size: int, prompt_ids: Sequence[int]) -> None:
        self.instances: list[Instance] = []
        self.importance = 1.0
        self._kind: dict[int, tuple[int, ...]] = {
            token: (known, False, 0, 0, 0) for token, known in prior.words.classes.items()
        }
        self._kinds: Counter[tuple[int, ...]] = Counter(self._kind.values())
        super().__init__(prior, vocab_size, prompt_ids)

    def _update_slot(self, token: int) -> None:
        super()._update_slot(token)
        kind = self.features(token)
        self._kinds[self._kind.get(token, kind)] -= token in self._kind
        self._kinds[kind] += 1
        self._kind[token] = kind

    def code(self, coder: Coder, token: int, *, may_end: bool) -> int:
        candidates, longest = self.context_candidates()
        if not may_end:
            del candidates[0]
        kinds = {kind: count for kind, count in self._kinds.items() if count}
        looks = []
        for each in candidates:
            kind = self._kind.get(each.id)
            if kind is not None:
                kinds[kind] -= 1
            looks.append((each, self.features(each.id) if each.id != END else None))
        names = [each.id for each in candidates]
        self.instances.append(
            Instance(
                kinds=kinds,
                candidates=looks,
                target=names.index(token) if token in names else None,
                slot=self._kind.get(token) if token not in names else None,
                token=token,
                age=min(6, (self._coded + 1).bit_length()),
                escape=self.escape_class(longest),
                importance=self.importance,
            )
        )
        self._coded += 1
        if token != END:
            self.push(token)
        return token


def record(trace: Trace, prompt_ids: Sequence[int], prior: Prior, vocab_size: int) -> list[Instance]:
    """Instances of a trace's anchors at 25% of the steps; those of 10% have the greatest weight."""
    model = Recorder(prior, vocab_size, prompt_ids)
    pairs = trace.anchors["0.25"]
    whole = len(pairs) == trace.length
    coder = Coder(None)
    early = {position for position, _ in trace.anchors["0.1"]}
    at = 0
    for position, token in pairs:
        if position > at:
            model.gap()
        model.importance = 1.0 if position in early else 0.25
        model.code(coder, token, may_end=whole)
        at = position + 1
    if whole:
        model.code(coder, END, may_end=True)
    return model.instances


def sources(args: argparse.Namespace, traces: list[Trace], tokenizer: TraceTokenizer) -> list[TextSource]:
    """Every text for the word statistics."""
    out = []
    for trace in traces:
        ids = [START, *full_answer(trace, tokenizer)]
        if not trace.output_cut:
            ids.append(END)
        out.append(TextSource(trace.name, Text(ids, TRACE_WEIGHT)))
    for path in args.fills:
        for line in read_text(path).splitlines():
            row = json.loads(line)
            name = f"{row['benchmark']}/{row['index']}"
            alone = [START, *tokenizer.encode(row["alone_text"]), END]
            out.append(TextSource(name, Text(alone, FILL_WEIGHT)))
            for key in ("sf_0.1", "sf_0.25"):
                ids = [t if t < tokenizer.contract.vocab_size else END for t in row[key]["real_tokens"]]
                ids = ids[: ids.index(END) + 1] if END in ids else ids
                out.append(TextSource(name, Text([START, *ids], FILL_WEIGHT / 2)))
    if args.prompts:
        out += [
            TextSource(name, Text(tokenizer.encode(text), PROMPT_WEIGHT))
            for name, text in _problems(args.prompts)
        ]
    return out


def _problems(folder: Path) -> Iterable[tuple[str | None, str]]:
    """Worked solutions, functions and questions of the public test sets' samples; GSM8K's with a name."""
    for number, row in enumerate(_gsm8k(folder)):
        yield _solution(number), re.sub(r"<<.*?>>", "", row["answer"].split("\n####")[0])
    for line in read_text(folder / "humaneval.jsonl").splitlines():
        row = json.loads(line)
        yield None, "```python\n" + row["prompt"] + row["canonical_solution"] + "```"
    for line in read_text(folder / "mmlu.jsonl").splitlines():
        row = json.loads(line)
        yield None, row["question"]
        yield None, row["choices"][0]


def _gsm8k(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in read_text(folder / "gsm8k.jsonl").splitlines()]


def _solution(number: int) -> str:
    """Name of a worked solution; no trace has one with a space."""
    return f"solution {number}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.formats.train_token_model",
        description="Train the model file of codec compact.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--traces", type=Path, required=True, help="JSONL of diffusion runs")
    parser.add_argument(
        "--fills", type=Path, action="append", default=[], help="JSONL of fills of those runs"
    )
    parser.add_argument("--prompts", type=Path, help="folder with gsm8k.jsonl, humaneval.jsonl, mmlu.jsonl")
    parser.add_argument(
        "--tokenizer", type=Path, help="tokenizer.json[.gz]; default: beside the traces' folder"
    )
    parser.add_argument("--folds", type=int, default=5, help="folds of the cross-validation (5)")
    parser.add_argument("--measure", action="store_true", help="only print the cost of held-out traces")
    parser.add_argument(
        "--measure-questions",
        action="store_true",
        help="only print the frames of GSM8K's questions, coded with statistics without their solutions",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=MODEL_FILE, help="model file (payload/model.bin)"
    )
    args = parser.parse_args(argv)
    return run_command("lab.formats.train_token_model", lambda: train(args))


def train(args: argparse.Namespace) -> int:
    """Trains and writes the model file, or with `--measure` prints the cost of held-out traces."""
    tokenizer = TraceTokenizer(args.tokenizer or args.traces.parent / DEFAULT_TOKENIZER)
    size = tokenizer.contract.vocab_size
    traces = read_traces(args.traces)
    texts = sources(args, traces, tokenizer)
    if args.measure_questions:
        if args.prompts is None:
            raise InputError("--measure-questions: expected --prompts FOLDER beside it, found none")
        row = summary(question_frames(args.prompts, args.folds, texts, tokenizer))
        print(
            f"questions of GSM8K, their solutions left out: mean {row['mean']:.1f}, median "
            f"{row['median']:.0f}, 95% below {row['p95']:.0f} bytes per frame"
        )
        return 0
    order = list(range(len(traces)))
    random.Random(SEED).shuffle(order)
    folds = [order[at :: args.folds] for at in range(args.folds)]
    plain: list[list[Instance]] = []
    trained: list[list[Instance]] = []
    for number, fold in enumerate(folds):
        words = words_without({traces[at].name for at in fold}, texts, tokenizer)
        plain.append([])
        trained.append([])
        for at in fold:
            ids = tokenizer.encode(traces[at].prompt)
            for prompt, importance in ((ids, 1.0), ([], 0.4)):
                plain[-1] += weighed(record(traces[at], prompt, Prior(ZERO, Words()), size), importance)
                trained[-1] += weighed(record(traces[at], prompt, Prior(ZERO, words), size), importance)
        print(f"fold {number + 1} of {len(folds)}: {len(trained[-1])} tokens recorded", file=sys.stderr)
    if args.measure:
        rows: dict[tuple[str, bool], list[int]] = {}
        for number, fold in enumerate(folds):
            seen = [i for at, part in enumerate(trained) if at != number for i in part]
            words = words_without({traces[at].name for at in fold}, texts, tokenizer)
            prior = Prior(fit(seen, f"without fold {number + 1}"), words)
            for at in fold:
                for fraction in MEASURED:
                    anchors = anchors_of(traces[at], fraction, tokenizer)
                    for known in (True, False):
                        ids = tokenizer.encode(traces[at].prompt) if known else []
                        size = HEADER_BYTES + len(compact.encode(anchors, ids, None, prior))
                        rows.setdefault((fraction, known), []).append(size)
        for (fraction, known), sizes in rows.items():
            row = summary(sizes)
            print(
                f"held out, at {fraction}, prompt {'known' if known else 'unknown'}: mean {row['mean']:.2f}, "
                f"median {row['median']:.0f}, 95% below {row['p95']:.0f} bytes per payload"
            )
        return 0
    weights = [fit([i for part in parts for i in part], "all") for parts in (plain, trained)]
    data = write_model(size, weights[0], weights[1], words_without(set(), texts, tokenizer))
    write_whole(args.output, data)
    print(f"{args.output}: {len(data)} bytes")
    return 0


def question_frames(
    folder: Path, folds: int, texts: list[TextSource], tokenizer: TraceTokenizer
) -> list[int]:
    """Bytes of each question's frame under statistics made without the solutions of its fold."""
    rows, size = _gsm8k(folder), tokenizer.contract.vocab_size
    sizes = []
    for fold in range(folds):
        words = words_without(
            {_solution(number) for number in range(fold, len(rows), folds)}, texts, tokenizer
        )
        prior = Prior(prior_of(size).weights, words)
        for row in rows[fold::folds]:
            ids = tokenizer.encode(row["question"])
            anchors = as_anchors(ids, tokenizer.contract, CANVASES)
            sizes.append(QUESTION_HEADER_BYTES + len(compact.encode(anchors, (), None, prior)))
        print(f"fold {fold + 1} of {folds}", file=sys.stderr)
    return sizes


def words_without(names: set[str], texts: list[TextSource], tokenizer: TraceTokenizer) -> Words:
    return count_words((source.text for source in texts if source.name not in names), tokenizer.piece)


def weighed(instances: list[Instance], importance: float) -> list[Instance]:
    return [instance._replace(importance=instance.importance * importance) for instance in instances]


if __name__ == "__main__":
    np.seterr(over="ignore")
    sys.exit(main())
